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

sigset_t queued() { return signal_set({SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD}); }

}  // namespace

SignalQueue::SignalQueue() : held_(queued()) {
  const sigset_t set = queued();
  descriptor_ = io::FileDescriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (descriptor_.get() < 0) throw Error("cannot receive signals as events");
}

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
      const sigset_t one = signal_set({*signal});
      ::kill(::getpid(), *signal);
      pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    }
    if (polled[1].revents != 0) break;
  }
  result.get();
}

}  // namespace megatrain::launcher
