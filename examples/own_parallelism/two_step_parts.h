#pragma once
/// @file
/// Tensor parallelism of our own: it divides layers as MegaTrain's does, and lets their parts meet
/// in another way.

#include <memory>

#include "core/engine/communicator.h"
#include "core/model/part_group.h"

/// A sum over parts in two steps, each of which moves a part's share: first every rank adds up its
/// share, then all gather what the others added up. On some networks that is faster than one step.
class TwoStepParts final : public megatrain::PartGroup {
 public:
  explicit TwoStepParts(std::unique_ptr<megatrain::Communicator> ranks);

  [[nodiscard]] megatrain::Partition partition() const override;
  void sum(megatrain::Stream& stream, void* data, megatrain::Index count,
           megatrain::DType type) const override;
  void gather(megatrain::Stream& stream, const void* own, void* whole, megatrain::Index count,
              megatrain::DType type) const override;
  void sum(std::span<double> values) const override;
  void check() const override;
  void abort(std::string_view reason) const noexcept override;

 private:
  std::unique_ptr<megatrain::Communicator> ranks_;
};
