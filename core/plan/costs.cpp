#include "core/plan/costs.h"

#include <cmath>
#include <functional>

#include "core/ops/recording.h"

namespace megatrain {

namespace {

/// Adds up what a part receives: of a sum, what is left when each part adds up its share and hands
/// it to the others.
class CountedParts final : public PartGroup {
 public:
  explicit CountedParts(const Partition& partition) : partition_(partition) {}
  [[nodiscard]] Partition partition() const override { return partition_; }
  void sum(Stream& /*stream*/, void* /*data*/, Index count, DType type) const override {
    if (others() == 0) return;
    bytes_ += 2 * others() * ceil_div(count, partition_.count) * size_of(type);
    ++calls_;
  }
  void gather(Stream& /*stream*/, const void* /*own*/, void* /*whole*/, Index count,
              DType type) const override {
    bytes_ += others() * count * size_of(type);
    ++calls_;
  }
  [[nodiscard]] Index bytes() const { return bytes_; }
  [[nodiscard]] Index calls() const { return calls_; }

 private:
  [[nodiscard]] Index others() const { return partition_.count - 1; }
  Partition partition_;
  mutable Index bytes_ = 0;
  mutable Index calls_ = 0;
};

/// A graph is one call of the driver, which does more than the launch of a kernel does...
constexpr Index kGraphCall = 2;
/// ...and a little for each of its kernels: so many take as long as a launch.
constexpr Index kGraphKernelsALaunch = 16;

using Enqueue = std::function<void(const ops::Ops&, Stream&, const PartGroup&)>;

/// Where buffers are said to lie: never followed, but not null, which would mean "none".
std::byte* somewhere() {
  static std::byte anything{};
  return &anything;
}

Cost cost_of(const Partition& partition, const Enqueue& enqueue) {
  ops::Work work;
  const CountedParts parts(partition);
  const std::vector<ops::AnyOp> calls =
      ops::record([&](const ops::Ops& ops, Stream& stream) { enqueue(ops, stream, parts); });
  for (const ops::AnyOp& call : calls) work += ops::work_of(call);
  return {.flops = work.product_flops,
          .attention_flops = work.attention_flops,
          .device_bytes = static_cast<Index>(std::llround(work.bytes)),
          .peer_bytes = parts.bytes(),
          .launches = static_cast<Index>(calls.size()) + parts.calls()};
}

}  // namespace

Index graph_launches(Index kernels) { return kGraphCall + ceil_div(kernels, kGraphKernelsALaunch); }

Costs::Costs(const Model& model, const Choices& choices) {
  const auto cost = [&](const Enqueue& enqueue) { return cost_of(model.partition(), enqueue); };
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
    costs.kept_bytes = block.kept_bytes(keep);
    costs.forward = cost([&](const ops::Ops& ops, Stream& s, const PartGroup& parts) {
      block.forward(ops, s, keep, with_output, parts);
    });
    if (trains) {
      costs.recompute = cost([&](const ops::Ops& ops, Stream& s, const PartGroup& parts) {
        block.recompute(ops, s, keep, buffers, parts);
      });
      costs.recompute_with_output =
          cost([&](const ops::Ops& ops, Stream& s, const PartGroup& parts) {
            block.recompute(ops, s, keep, with_output, parts);
          });
      costs.backward = cost([&](const ops::Ops& ops, Stream& s, const PartGroup& parts) {
        block.backward(ops, s, keep, buffers, parts);
      });
    }
    if (choices.graphs)
      for (Cost* visit :
           {&costs.forward, &costs.recompute, &costs.recompute_with_output, &costs.backward})
        visit->launches = graph_launches(visit->launches);
    blocks_.push_back(costs);
  }

  const Embedding embedding(model, choices.compute, choices.micro_batch);
  EmbeddingBuffers lookup;
  lookup.weights = somewhere();
  lookup.ids = reinterpret_cast<const std::int32_t*>(somewhere());
  lookup.output = somewhere();
  embed_ = cost([&](const ops::Ops& ops, Stream& s, const PartGroup& parts) {
    embedding.forward(ops, s, lookup, parts);
  });

  const Head head(model, choices.compute, choices.micro_batch);
  HeadBuffers visit;
  visit.weights = visit.table = visit.temporary = somewhere();
  visit.input = somewhere();
  visit.targets = reinterpret_cast<const std::int32_t*>(somewhere());
  visit.losses = visit.gradient = visit.table_gradient = reinterpret_cast<float*>(somewhere());
  evaluate_ = cost([&](const ops::Ops& ops, Stream& s, const PartGroup& parts) {
    head.visit(ops, s, visit, parts);
  });
  logits_ = cost([&](const ops::Ops& ops, Stream& s, const PartGroup& parts) {
    for (Index sequence = 0; sequence < choices.micro_batch.batch; ++sequence)
      head.logits(ops, s, visit, 0, 1, somewhere(), parts);
  });
  visit.gradient_stream = somewhere();
  head_ = cost([&](const ops::Ops& ops, Stream& s, const PartGroup& parts) {
    head.visit(ops, s, visit, parts);
  });
}

}  // namespace megatrain
