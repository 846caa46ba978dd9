#pragma once
/// @file
/// How a thread treats numbers below the smallest normal one (denormals).

#include <cstdint>

namespace megatrain {

/// They count as zero on this thread and on those that it starts (they inherit its floating-point
/// environment). Processors take a hundred times longer over them, and a sharp softmax is full of
/// them.
void flush_tiny_numbers();

/// While it lives, this thread keeps them: for work whose bits must be those of the host.
class KeptTinyNumbers {
 public:
  KeptTinyNumbers();
  ~KeptTinyNumbers();
  KeptTinyNumbers(const KeptTinyNumbers&) = delete;
  KeptTinyNumbers& operator=(const KeptTinyNumbers&) = delete;

 private:
  std::uint64_t before_;
};

}  // namespace megatrain
