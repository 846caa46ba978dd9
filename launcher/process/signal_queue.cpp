#include "launcher/process/signal_queue.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <future>

#include "core/base/error.h"
#include "parallel/rendezvous/socket.h"

namespace megatrain::launcher {

namespace {

sigset_t queued() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

}  // namespace

SignalQueue::SignalQueue() {
  const sigset_t set = queued();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  descriptor_ = io::FileDescriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (descriptor_.get() < 0) throw Error("cannot receive signals as events");
}

SignalQueue::~SignalQueue() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> SignalQueue::take() {
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void SignalQueue::run_interruptible(const std::function<void()>& act) {
  const parallel::Waker done;
  std::future<void> result = std::async(std::launch::async, [&] {
    // Also when it throws.
    struct Wake {
      const parallel::Waker& waker;
      ~Wake() { waker.wake(); }
    } const wake{done};
    act();
  });
  for (;;) {
    std::array<pollfd, 2> polled{{{descriptor(), POLLIN, 0}, {done.descriptor(), POLLIN, 0}}};
    ::poll(polled.data(), polled.size(), -1);
    while (const std::optional<int> signal = take()) {
      if (*signal == SIGCHLD) continue;
      std::signal(*signal, SIG_DFL);
      sigset_t one;
      sigemptyset(&one);
      sigaddset(&one, *signal);
      ::kill(::getpid(), *signal);
      pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    }
    if (polled[1].revents != 0) break;
  }
  result.get();
}

}  // namespace megatrain::launcher
