#pragma once
/// @file
/// What goes wrong while a run ends and saves what it can.

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace megatrain::launcher {

/// Throws `text` as a UserError where `like` is one, else as an Error: the exit code stays.
[[noreturn]] void throw_like(const Error& like, const std::string& text);

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
