#pragma once
/// @file
/// Gloo writes to sockets without asking for no signal, and a peer that died would take this
/// process along.

#include <ctime>

#include "core/base/signals_held.h"

namespace megatrain {

/// While it lives, a write of this thread to a broken connection is an error and no SIGPIPE.
/// Threads that are started meanwhile stay that way. The rest of the process is left alone.
class QuietPipes {
 public:
  QuietPipes() = default;
  ~QuietPipes() {
    // One that came meanwhile must not arrive now.
    const sigset_t pipe = signal_set({SIGPIPE});
    const timespec now{};
    if (!was_pending_)
      while (sigtimedwait(&pipe, nullptr, &now) == SIGPIPE) {
      }
  }
  QuietPipes(const QuietPipes&) = delete;
  QuietPipes& operator=(const QuietPipes&) = delete;

 private:
  static bool is_pending() {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) == 1;
  }

  bool was_pending_ = is_pending();
  SignalsHeld held_{signal_set({SIGPIPE})};
};

}  // namespace megatrain
