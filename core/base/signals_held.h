#pragma once
/// @file
/// Signals that are kept out of a thread for a while.

#include <csignal>
#include <initializer_list>

namespace megatrain {

/// The set of these signals.
inline sigset_t signal_set(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

/// While it lives, this thread and every thread it starts hold the signals besides those that it
/// held before. The started ones stay so; signals sent to the process go to others. Belongs to the
/// thread that made it; the last one made goes first.
class SignalsHeld {
 public:
  explicit SignalsHeld(const sigset_t& signals) { pthread_sigmask(SIG_BLOCK, &signals, &before_); }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

  /// What the thread held before.
  [[nodiscard]] const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
};

}  // namespace megatrain
