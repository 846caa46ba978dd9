#include "core/plan/costs.h"

#include <cmath>
#include <functional>

#include "core/ops/recording.h"

namespace megatrain {

namespace {

using Enqueue = std::function<void(const ops::Ops&, Stream&)>;

/// Where buffers are said to lie: never followed, but not null, which would mean "none".
std::byte* somewhere() {
  static std::byte anything{};
  return &anything;
}

Cost cost_of(const Enqueue& enqueue) {
  ops::Work work;
  const std::vector<ops::AnyOp> calls = ops::record(enqueue);
  for (const ops::AnyOp& call : calls) work += ops::work_of(call);
  return {.flops = work.product_flops,
          .attention_flops = work.attention_flops,
          .device_bytes = static_cast<Index>(std::llround(work.bytes)),
          .launches = static_cast<Index>(calls.size())};
}

}  // namespace

Costs::Costs(const Model& model, const Choices& choices) {
  const bool trains = choices.purpose == Purpose::train;
  BlockBuffers buffers;
  buffers.weights = buffers.kept = buffers.recomputed = buffers.temporary = somewhere();
  buffers.input = buffers.gradient_stream = somewhere();
  buffers.gradient = reinterpret_cast<float*>(somewhere());
  buffers.rope_cosine = buffers.rope_sine = reinterpret_cast<const float*>(somewhere());
  BlockBuffers with_output = buffers;
  with_output.output = somewhere();
  for (Index b = 0; b < model.config().layers; ++b) {
    const Block block(model, b + 1, choices.compute, choices.micro_batch);
    const Keep keep = trains ? choices.keep_of(b) : Keep::boundary;
    BlockCosts costs;
    costs.forward =
        cost_of([&](const ops::Ops& ops, Stream& s) { block.forward(ops, s, keep, with_output); });
    if (trains) {
      costs.recompute =
          cost_of([&](const ops::Ops& ops, Stream& s) { block.recompute(ops, s, keep, buffers); });
      costs.recompute_with_output = cost_of(
          [&](const ops::Ops& ops, Stream& s) { block.recompute(ops, s, keep, with_output); });
      costs.backward =
          cost_of([&](const ops::Ops& ops, Stream& s) { block.backward(ops, s, keep, buffers); });
    }
    blocks_.push_back(costs);
  }

  const Head head(model, choices.compute, choices.micro_batch);
  HeadBuffers visit;
  visit.weights = visit.table = visit.temporary = somewhere();
  visit.input = somewhere();
  visit.targets = reinterpret_cast<const std::int32_t*>(somewhere());
  visit.losses = visit.gradient = visit.table_gradient = reinterpret_cast<float*>(somewhere());
  evaluate_ = cost_of([&](const ops::Ops& ops, Stream& s) { head.visit(ops, s, visit); });
  logits_ = cost_of([&](const ops::Ops& ops, Stream& s) {
    for (Index sequence = 0; sequence < choices.micro_batch.batch; ++sequence)
      head.logits(ops, s, visit, 0, 1, somewhere());
  });
  visit.gradient_stream = somewhere();
  head_ = cost_of([&](const ops::Ops& ops, Stream& s) { head.visit(ops, s, visit); });
}

}  // namespace megatrain
