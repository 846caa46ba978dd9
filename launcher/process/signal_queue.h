#pragma once
/// @file
/// Signals as events, for a program that waits for many things at once.

#include <functional>
#include <optional>

#include "core/base/signals_held.h"
#include "io/file.h"

namespace megatrain::launcher {

/// Takes SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD while it lives: none interrupts anything,
/// each is read in turn. Make it before any thread, so that all threads leave them to it. What was
/// ignored before (SIGHUP under nohup) stays so.
class SignalQueue {
 public:
  SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// Readable when a signal waits.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  std::optional<int> take();
  /// The signals that were blocked before, for programs that are started.
  [[nodiscard]] const sigset_t& before() const { return held_.before(); }

  /// Runs `act` in another thread. A signal meanwhile ends this program, as it would have without
  /// the queue: use it where nothing has to be cleared up.
  void run_interruptible(const std::function<void()>& act);

 private:
  SignalsHeld held_;
  io::FileDescriptor descriptor_;
};

}  // namespace megatrain::launcher
