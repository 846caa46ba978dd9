#include "two_step_parts.h"

#include <utility>

using megatrain::DType;
using megatrain::Index;
using megatrain::Stream;

TwoStepParts::TwoStepParts(std::unique_ptr<megatrain::Communicator> ranks)
    : ranks_(std::move(ranks)) {}

megatrain::Partition TwoStepParts::partition() const { return {ranks_->size(), ranks_->rank()}; }

void TwoStepParts::sum(Stream& stream, void* data, Index count, DType type) const {
  // reduce_scatter adds up fp32 alone, and cuts evenly; what is left over is summed at once.
  const Index share = type == DType::f32 ? count / ranks_->size() : 0;
  if (share > 0) {
    auto* whole = static_cast<float*>(data);
    float* own = whole + ranks_->rank() * share;
    ranks_->reduce_scatter(stream, whole, own, share);
    ranks_->all_gather(stream, own, whole, share, type);
  }
  const Index done = share * ranks_->size();
  ranks_->all_reduce(stream, static_cast<std::byte*>(data) + done * megatrain::size_of(type),
                     count - done, type);
}

void TwoStepParts::gather(Stream& stream, const void* own, void* whole, Index count,
                          DType type) const {
  ranks_->all_gather(stream, own, whole, count, type);
}

void TwoStepParts::sum(std::span<double> values) const { ranks_->sum(values); }

void TwoStepParts::check() const { ranks_->check(); }

void TwoStepParts::abort(std::string_view reason) const noexcept { ranks_->abort(reason); }
