#pragma once
/// @file
/// Signals as a request to stop. Before training they end the program, which loses nothing; then
/// the first lets the step in work end and the state be saved, and one that comes a second later or
/// more leaves at once. Schedulers and terminals send several in the same moment, in an order that
/// the system does not keep: what any of them asks for is done.

#include <array>
#include <csignal>

namespace megatrain::launcher {

/// Takes SIGINT, SIGTERM, SIGUSR1 and SIGHUP (a lost terminal) while it lives; one at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// From now on there is something to save.
  void training_begins();
  /// From now on there is not: a rank has failed, and all end. A signal that comes after that, as
  /// launchers send one to the other ranks, asks for nothing. From any thread.
  void run_is_over();
  [[nodiscard]] bool stop_requested() const;
  /// By that signal, among others.
  [[nodiscard]] bool stop_requested(int signal) const;
  /// Asked by SIGTERM or SIGUSR1, as schedulers do before they take a machine away: the run shall
  /// be saved so that it can go on elsewhere.
  [[nodiscard]] bool requeue_requested() const;

 private:
  std::array<struct sigaction, 4> before_{};
};

}  // namespace megatrain::launcher
