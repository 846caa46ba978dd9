#pragma once
/// @file
/// What goes wrong while a run ends and saves what it can.

#include <exception>
#include <functional>
#include <vector>

namespace megatrain::launcher {

/// In the order in which it went wrong: the first is the cause of the end, others may follow from
/// it.
class Failures {
 public:
  /// @param failure  nullptr: none
  void add(std::exception_ptr failure);
  /// Runs `act` and keeps the Error that it throws.
  void collect(const std::function<void()>& act);
  /// Throws, if anything failed: the only failure as it is; of several an error of the first one's
  /// kind that says all of them.
  void rethrow() const;

 private:
  std::vector<std::exception_ptr> all_;
};

}  // namespace megatrain::launcher
