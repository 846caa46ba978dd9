#pragma once
/// @file
/// How one part of a model meets the others. The pieces call it at the points where a layer's parts
/// depend on one another; what happens there is supplied from outside the core
/// (parallel/tensor).

#include <span>
#include <string_view>

#include "core/device/device.h"
#include "core/model/partition.h"

namespace megatrain {

/// The parts of a model, as one of them sees them. This one is alone: nothing has to be done.
///
/// Every part makes the same calls with the same sizes in the same order. sum and gather are
/// enqueued, like ops, and all go to one stream.
class PartGroup {
 public:
  PartGroup() = default;
  virtual ~PartGroup() = default;
  PartGroup(const PartGroup&) = delete;
  PartGroup& operator=(const PartGroup&) = delete;

  /// For those that have no other part.
  static const PartGroup& alone() {
    static const PartGroup kOnly;
    return kOnly;
  }

  [[nodiscard]] virtual Partition partition() const { return {}; }
  /// data[0, count) becomes its sum over all parts, with the same bits on each: a layer's result of
  /// which every part has a share.
  virtual void sum(Stream& /*stream*/, void* /*data*/, Index /*count*/, DType /*type*/) const {}
  /// Each part's `own` of `count` elements, in their order, into `whole` of partition().count *
  /// count elements; `own` may lie at its place there.
  virtual void gather(Stream& stream, const void* own, void* whole, Index count, DType type) const {
    if (own != whole) stream.copy(whole, own, count * size_of(type));
  }
  /// Replaces each value by its sum over the parts, added in their order. Blocks the calling
  /// thread.
  virtual void sum(std::span<double> /*values*/) const {}
  /// Returns when nothing has failed so far: every result that was waited for is good. @throws
  /// Error
  virtual void check() const {}
  /// Wakes the other parts, which fail with the reason: this one makes no more calls.
  virtual void abort(std::string_view /*reason*/) const noexcept {}
};

}  // namespace megatrain
