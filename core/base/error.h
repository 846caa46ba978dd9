#pragma once
/// @file
/// Exceptions with context. Every error names what was being done, on what, what was expected and
/// what the user can do; the program maps the two kinds to its exit codes.

#include <stdexcept>
#include <string>
#include <string_view>

namespace megatrain {

/// Base of every exception that MegaTrain throws: a failure that the user cannot mend by changing
/// the request (exit code 1): an I/O error, a device error, a broken invariant.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}

  /// The same error with one more line of context in front ("while reading FILE: ...").
  [[nodiscard]] static std::string with_context(std::string_view context, std::string_view message);
};

/// A failure that the user can mend (exit code 2): bad options, bad files, a budget too small.
class UserError : public Error {
 public:
  using Error::Error;
};

/// A broken promise between our own components (a slot read before it is filled, a plan that the
/// checker rejects). Always a bug, never a user's mistake.
class LogicError : public Error {
 public:
  using Error::Error;
};

/// Throws LogicError with `what` when `condition` does not hold. Stays on in release builds: it
/// guards invariants at the granularity of instructions, never of elements.
inline void require(bool condition, std::string_view what) {
  if (!condition) throw LogicError("internal error: " + std::string(what));
}

}  // namespace megatrain
