#pragma once
/// @file
/// The table of op functions that each device fills, and the value that the engine calls.

#include <memory>
#include <tuple>

#include "core/device/device.h"
#include "core/ops/activation.h"
#include "core/ops/adamw.h"
#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/embedding.h"
#include "core/ops/gemm.h"
#include "core/ops/norm.h"
#include "core/ops/reduce_gradient.h"
#include "core/ops/rope.h"

namespace megatrain::ops {

/// What a device's op functions keep between calls: library handles, primitive caches, threads.
class OpState {
 public:
  virtual ~OpState() = default;
};

/// One op on one device: enqueues the work on the stream and returns.
template <class Arguments>
using OpFunction = void (*)(OpState&, Stream&, const Arguments&);

/// Every op, looked up by the type of its arguments. A device fills all of it.
using OpTable =
    std::tuple<OpFunction<Gemm>, OpFunction<BiasGradient>, OpFunction<NormForward>,
               OpFunction<NormBackward>, OpFunction<Rope>, OpFunction<AttentionForward>,
               OpFunction<AttentionBackward>, OpFunction<SwigluForward>, OpFunction<SwigluBackward>,
               OpFunction<GeluForward>, OpFunction<GeluBackward>, OpFunction<EmbeddingForward>,
               OpFunction<EmbeddingBackward>, OpFunction<PositionBackward>,
               OpFunction<CrossEntropy>, OpFunction<LogitStatistics>,
               OpFunction<CrossEntropyOfPart>, OpFunction<ReduceGradient>, OpFunction<AdamW>>;

/// Why an attention backend cannot serve a shape; empty when it can.
using AttentionRefusal = std::string (*)(OpState&, const AttentionShape&, AttentionBackend);

/// A device's kernels, bound to their state. Must not outlive the device.
class Ops {
 public:
  Ops(const OpTable& table, AttentionRefusal refusal, std::unique_ptr<OpState> state)
      : table_(table), attention_refusal_(refusal), state_(std::move(state)) {}

  /// Enqueues one op on `stream`, which must be a stream of this table's device.
  template <class Arguments>
  void run(Stream& stream, const Arguments& arguments) const {
    std::get<OpFunction<Arguments>>(table_)(*state_, stream, arguments);
  }

  /// The reason why `backend` refuses `shape` on this device; empty when it serves it.
  [[nodiscard]] std::string attention_refusal(const AttentionShape& shape,
                                              AttentionBackend backend) const {
    return attention_refusal_(*state_, shape, backend);
  }

 private:
  OpTable table_;
  AttentionRefusal attention_refusal_;
  std::unique_ptr<OpState> state_;
};

/// The kernels of `device`. @throws UserError when the CPU lacks what `compute` needs (bf16)
Ops make_ops(Device& device, DType compute);

}  // namespace megatrain::ops
