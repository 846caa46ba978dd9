#pragma once
/// @file
/// SIGINT, SIGTERM and SIGHUP (a lost terminal) as a request: the first lets the step in work end
/// and the model be saved, the second leaves at once.

#include <array>
#include <csignal>

namespace megatrain::launcher {

/// Takes the signals while it lives; one at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] bool stop_requested() const;

 private:
  std::array<struct sigaction, 3> before_{};
};

}  // namespace megatrain::launcher
