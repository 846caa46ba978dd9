#pragma once
/// @file
/// What an op asks of a device, by its arguments alone: what cost models add up and benchmarks
/// divide by.

#include <string>
#include <variant>

#include "core/ops/ops.h"

namespace megatrain::ops {

/// A copy inside the device's memory, which templates ask a stream for.
struct DeviceCopy {
  void* destination = nullptr;
  const void* source = nullptr;
  Index bytes = 0;
};

/// Operations, and bytes where nothing else is worth counting. Of an op exactly one is not zero.
struct Work {
  double product_flops = 0;    ///< multiply-adds x 2 of matrix products
  double attention_flops = 0;  ///< the same of causal attention, over the pairs that it looks at
  double bytes = 0;            ///< of element-wise ops: read plus written, each operand once

  Work& operator+=(const Work& other) {
    product_flops += other.product_flops;
    attention_flops += other.attention_flops;
    bytes += other.bytes;
    return *this;
  }
  bool operator==(const Work&) const = default;
};

namespace detail {
template <class Table>
struct Arguments;
template <class... Op>
struct Arguments<std::tuple<OpFunction<Op>...>> {
  using Any = std::variant<Op..., DeviceCopy>;
};
}  // namespace detail

/// The arguments of one call of any op.
using AnyOp = detail::Arguments<OpTable>::Any;

Work work_of(const AnyOp& op);

/// "product", "attention", "attention backward", or the element-wise op's name.
std::string_view name(const AnyOp& op);

/// The shape that decides how long it takes, as in "m 8192 n 512 k 192, added".
std::string shape_text(const AnyOp& op);

}  // namespace megatrain::ops
