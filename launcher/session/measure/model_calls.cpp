#include "launcher/session/measure/model_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "core/ops/recording.h"
#include "launcher/session/measure/timing.h"

namespace megatrain::launcher {

namespace {

/// On a GPU long enough for clocks to fall to what the power allows, where a call needs much of it.
double least_seconds(DeviceKind kind, const MeasuredCall& call) {
  return kind == DeviceKind::cuda && call.work.bytes == 0 ? 0.5 : 0.1;
}

/// Different calls, in the order of their first appearance.
class CallList {
 public:
  void add(const std::string& pass, const std::vector<ops::AnyOp>& ops) {
    for (const ops::AnyOp& op : ops) {
      MeasuredCall call{.pass = pass_of(pass, op),
                        .op = std::string(ops::name(op)),
                        .shape = ops::shape_text(op),
                        .count = 0,
                        .work = ops::work_of(op)};
      const auto [known, is_new] =
          places_.try_emplace(call.pass + call.op + call.shape, calls.size());
      if (is_new) {
        calls.push_back(std::move(call));
        arguments.push_back(op);
      }
      ++calls[known->second].count;
    }
  }

  std::vector<MeasuredCall> calls;
  std::vector<ops::AnyOp> arguments;  ///< of each

 private:
  /// Of the products of a backward pass those that make gradients of weights sum over tokens.
  static std::string pass_of(const std::string& pass, const ops::AnyOp& op) {
    const auto* product = std::get_if<ops::Gemm>(&op);
    if (product == nullptr || pass == "forward") return pass;
    if (product->transpose_a) return pass == "head" ? "head dW" : "dW";
    // The vocabulary's weight is stored [vocabulary, hidden] in every family.
    if (pass == "head") return product->transpose_b ? "head forward" : "head dX";
    return "dX";
  }

  std::map<std::string, std::size_t> places_;
};

using Enqueue = std::function<void(const ops::Ops&, Stream&)>;

void measure(Machine& machine, Stream& stream, CallList& list) {
  // Products first: they leave their inputs as they are, while what follows may turn them into
  // zeros, on which processors are faster.
  for (const bool products : {true, false}) {
    std::vector<std::size_t> of;
    std::vector<Repeated> repeated;
    for (std::size_t i = 0; i < list.calls.size(); ++i) {
      if ((list.calls[i].work.product_flops > 0) != products) continue;
      of.push_back(i);
      repeated.push_back({[&, i] { ops::replay(*machine.ops, stream, list.arguments[i]); },
                          least_seconds(machine.kind, list.calls[i])});
    }
    const std::vector<double> seconds = seconds_of_calls(repeated, [&] { stream.synchronize(); });
    for (std::size_t n = 0; n < of.size(); ++n) list.calls[of[n]].seconds = seconds[n];
  }
}

void measure_blocks(Machine& machine, Stream& stream, const Model& model, const Choices& choices,
                    std::vector<MeasuredCall>& into) {
  const MicroBatchShape shape = choices.micro_batch;
  const Index elements = model.max_block_elements();
  const Index activation = shape.tokens() * model.config().hidden * size_of(machine.compute);
  const Index rope = shape.sequence * (model.config().head_dim / 2) * size_of(DType::f32);
  Index recomputed = 0;
  Index temporary = 0;
  for (Index b = 0; b < model.config().layers; ++b) {
    const Block block(model, b + 1, choices.compute, shape);
    recomputed = std::max(recomputed, block.recomputed_bytes(Keep::boundary));
    temporary = std::max(temporary, block.temporary_bytes());
  }
  const Index weights = elements * size_of(machine.compute);
  const Index gradient = elements * size_of(DType::f32);
  Scratch scratch(*machine.device, stream,
                  Scratch::room({weights, gradient, activation, activation, activation, recomputed,
                                 temporary, rope, rope}));
  BlockBuffers buffers;
  buffers.weights = scratch.take(weights);
  buffers.gradient = reinterpret_cast<float*>(scratch.take(gradient));
  buffers.input = scratch.take(activation);
  buffers.output = scratch.take(activation);
  buffers.gradient_stream = scratch.take(activation);
  buffers.recomputed = scratch.take(recomputed);
  buffers.temporary = scratch.take(temporary);
  buffers.rope_cosine = reinterpret_cast<const float*>(scratch.take(rope));
  buffers.rope_sine = reinterpret_cast<const float*>(scratch.take(rope));
  // As for every micro-batch but the first.
  buffers.accumulate = choices.micro_batches > 1;
  CallList list;
  for (Index b = 0; b < model.config().layers; ++b) {
    const Block block(model, b + 1, choices.compute, shape);
    list.add("forward", ops::record([&](const ops::Ops& ops, Stream& s) {
               block.forward(ops, s, Keep::boundary, buffers);
             }));
    list.add("backward", ops::record([&](const ops::Ops& ops, Stream& s) {
               block.backward(ops, s, Keep::boundary, buffers);
             }));
  }
  measure(machine, stream, list);
  std::ranges::move(list.calls, std::back_inserter(into));
}

void measure_head(Machine& machine, Stream& stream, const Model& model, const Choices& choices,
                  std::vector<MeasuredCall>& into) {
  const MicroBatchShape shape = choices.micro_batch;
  const Head head(model, choices.compute, shape);
  const bool tied = model.config().tied_embeddings;
  const Index activation = shape.tokens() * model.config().hidden * size_of(machine.compute);
  const auto elements = [&](Index unit) { return model.unit(unit).slab_elements; };
  const Index own = elements(model.head_unit());
  const Index table = tied ? elements(0) : 0;
  const Index of_tokens = shape.tokens() * size_of(DType::f32);
  Scratch scratch(*machine.device, stream,
                  Scratch::room({own * size_of(machine.compute), table * size_of(machine.compute),
                                 own * size_of(DType::f32), table * size_of(DType::f32), activation,
                                 of_tokens, of_tokens, head.temporary_bytes()}));
  HeadBuffers buffers;
  buffers.weights = scratch.take(own * size_of(machine.compute));
  buffers.table = scratch.take(table * size_of(machine.compute));
  buffers.gradient = reinterpret_cast<float*>(scratch.take(own * size_of(DType::f32)));
  buffers.table_gradient = reinterpret_cast<float*>(scratch.take(table * size_of(DType::f32)));
  buffers.gradient_stream = scratch.take(activation);
  buffers.input = buffers.gradient_stream;
  std::byte* targets = scratch.take(of_tokens);
  stream.fill(targets, 0, of_tokens);  // tokens that exist
  buffers.targets = reinterpret_cast<const std::int32_t*>(targets);
  buffers.losses = reinterpret_cast<float*>(scratch.take(of_tokens));
  buffers.temporary = scratch.take(head.temporary_bytes());
  buffers.accumulate = choices.micro_batches > 1;
  buffers.scale = 1.0F / static_cast<float>(choices.step_tokens());
  CallList list;
  list.add("head",
           ops::record([&](const ops::Ops& ops, Stream& s) { head.visit(ops, s, buffers); }));
  measure(machine, stream, list);
  std::ranges::move(list.calls, std::back_inserter(into));
}

std::vector<ops::AnyOp> slab_ops(Machine& machine, Stream& stream, const Choices& choices,
                                 Scratch& scratch, Index elements) {
  const Index moments = elements * size_of(choices.moments);
  ops::AdamW update{.slice = {.count = elements,
                              .gradient_type = choices.wire(),
                              .moment_type = choices.moments,
                              .master = choices.master},
                    .coefficients = {.eps = 1}};  // changes nothing
  update.slice.weights = scratch.take(elements * size_of(machine.compute));
  if (const Index bytes = elements * remainder_bytes(choices.master); bytes > 0)
    update.slice.remainder = reinterpret_cast<std::int16_t*>(scratch.take(bytes));
  update.slice.exp_avg = scratch.take(moments);
  update.slice.exp_avg_sq = scratch.take(moments);
  stream.fill(update.slice.exp_avg_sq, 0, moments);
  const Index wire = elements * size_of(choices.wire());
  update.slice.gradient = scratch.take(wire);
  ops::ReduceGradient reduce{.count = elements,
                             .gradient = reinterpret_cast<float*>(scratch.take(elements * 4)),
                             .wire_type = choices.wire()};
  reduce.wire = scratch.take(wire);
  reduce.partials =
      reinterpret_cast<double*>(scratch.take(ops::norm_partials(elements) * Index{sizeof(double)}));
  return {reduce, update};
}

}  // namespace

std::vector<MeasuredCall> measure_slab_calls(Machine& machine, const Model& model,
                                             const Choices& choices) {
  constexpr Index kEnough = Index{16} << 20;
  Index elements = 0;
  for (const Unit& unit : model.units()) elements = std::max(elements, unit.slab_elements);
  elements = std::min(elements, kEnough);
  const auto stream = machine.device->make_stream("measurement");
  const Index partials = ops::norm_partials(elements) * Index{sizeof(double)};
  Scratch scratch(*machine.device, *stream,
                  Scratch::room({elements * 4, elements * 4, elements * 4, elements * 4,
                                 elements * 4, elements * 4, elements * 4, partials}));
  CallList list;
  list.add("slab", slab_ops(machine, *stream, choices, scratch, elements));
  measure(machine, *stream, list);
  return list.calls;
}

std::vector<MeasuredCall> measure_calls(Machine& machine, const Model& model,
                                        const Choices& choices) {
  const auto stream = machine.device->make_stream("measurement");
  std::vector<MeasuredCall> calls;
  measure_blocks(machine, *stream, model, choices, calls);
  measure_head(machine, *stream, model, choices, calls);
  return calls;
}

CallRate together(std::span<const MeasuredCall> calls, double ops::Work::* part,
                  std::string_view op) {
  CallRate all;
  for (const MeasuredCall& call : calls) {
    if (call.work.*part <= 0 || (!op.empty() && call.op != op)) continue;
    all.work += static_cast<double>(call.count) * (call.work.*part);
    all.seconds += static_cast<double>(call.count) * call.seconds;
  }
  return all;
}

}  // namespace megatrain::launcher
