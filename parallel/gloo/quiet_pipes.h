#pragma once
/// @file
/// Gloo writes to sockets without asking for no signal, and a peer that died would take this
/// process along.

#include <csignal>
#include <ctime>

namespace megatrain {

/// While it lives, a write of this thread to a broken connection is an error and no SIGPIPE.
/// Threads that are started meanwhile stay that way. The rest of the process is left alone.
class QuietPipes {
 public:
  QuietPipes() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~QuietPipes() {
    // One that came meanwhile must not arrive now.
    const timespec now{};
    if (!was_pending_)
      while (sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
      }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  QuietPipes(const QuietPipes&) = delete;
  QuietPipes& operator=(const QuietPipes&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace megatrain
