#include "tests/model/template_rig.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "core/base/bfloat16.h"

namespace megatrain::modeltest {

using optest::Buffer;
using optest::Values;

namespace {

/// Of the temporary memory, so many bytes are poison before every call; most is a matmul library's.
constexpr Index kPoisonedTemporary = Index{1} << 20;

double rounded(double value, DType type) {
  const auto single = static_cast<float>(value);
  return type == DType::f32 ? single : to_float(to_bfloat16(single));
}

/// The host's part of an embedding's backward: tokens sorted by id.
struct SortedTokens {
  std::vector<std::int32_t> order, begins, unique;
  std::vector<std::int32_t> renumbered;  ///< per token, its place in `unique`

  explicit SortedTokens(std::span<const std::int32_t> ids) : renumbered(ids.size()) {
    std::map<std::int32_t, std::vector<std::int32_t>> tokens;
    for (std::size_t t = 0; t < ids.size(); ++t)
      tokens[ids[t]].push_back(static_cast<std::int32_t>(t));
    begins.push_back(0);
    for (const auto& [id, list] : tokens) {
      for (const std::int32_t t : list)
        renumbered[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(unique.size());
      order.insert(order.end(), list.begin(), list.end());
      begins.push_back(static_cast<std::int32_t>(order.size()));
      unique.push_back(id);
    }
  }
};

}  // namespace

reference::Tensors random_weights(const Model& model, DType type, std::uint64_t seed) {
  reference::Tensors tensors;
  for (const Unit& unit : model.units()) {
    for (const ParamDesc& param : unit.params) {
      const bool table =
          param.role == ParamRole::token_table || param.role == ParamRole::position_table;
      const double scale = param.shape.size() < 2 ? 0.3
                           : table                ? 0.8
                                                  : std::sqrt(3.0 / double(param.shape[1]));
      Values values = optest::random_values(param.elements(), ++seed, scale);
      for (double& value : values)
        value = rounded(value + (param.init == Init::ones ? 1.0 : 0.0), type);
      tensors[param.name] = std::move(values);
    }
  }
  return tensors;
}

reference::Batch random_batch(const ModelConfig& config, MicroBatchShape shape,
                              std::uint64_t seed) {
  const auto vocabulary = static_cast<std::int32_t>(config.vocabulary);
  reference::Batch batch{.batch = shape.batch,
                         .sequence = shape.sequence,
                         .ids = optest::random_ids(shape.tokens(), seed, vocabulary),
                         .targets = optest::random_ids(shape.tokens(), seed + 1, vocabulary)};
  for (std::size_t t = 2; t < batch.targets.size(); t += 5) batch.targets[t] = -100;
  return batch;
}

Index counted(const reference::Batch& batch) {
  return std::ranges::count_if(batch.targets, [](std::int32_t target) { return target >= 0; });
}

double cosine(const Values& a, const Values& b) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

TemplateRig::TemplateRig(optest::OpBench& bench, const ModelConfig& config,
                         const ComputeConfig& compute, MicroBatchShape shape, std::uint64_t seed)
    : TemplateRig(bench, config, compute, shape,
                  random_weights(Model(config), compute.type, seed)) {}

TemplateRig::TemplateRig(optest::OpBench& bench, const ModelConfig& config,
                         const ComputeConfig& compute, MicroBatchShape shape,
                         reference::Tensors weights)
    : bench_(bench),
      model_(config),
      compute_(compute),
      shape_(shape),
      weights_(std::move(weights)),
      temporary_(bench.scratch(temporary_bytes())) {
  for (auto& [name, values] : weights_)
    for (double& value : values) value = rounded(value, compute.type);
  for (const Unit& unit : model_.units()) {
    Values slab(static_cast<std::size_t>(unit.slab_elements));
    for (const ParamDesc& param : unit.params)
      std::ranges::copy(weights_.at(param.name), slab.begin() + param.offset);
    slabs_.push_back(bench_.input(compute.type, slab));
  }
  const RopeTables tables = rope_tables(config, shape.sequence);
  if (!tables.cosine.empty()) {
    rope_.push_back(bench_.input_raw(tables.cosine));
    rope_.push_back(bench_.input_raw(tables.sine));
  }
}

Index TemplateRig::temporary_bytes() const {
  return std::max(block(0).temporary_bytes(), Head(model_, compute_, shape_).temporary_bytes());
}

Buffer TemplateRig::fresh_accumulator(const Unit& unit) {
  Values start(static_cast<std::size_t>(unit.slab_elements));
  for (const ParamDesc& param : unit.params) {
    // The embedding's backward adds, and rows that no token touches are never written.
    const bool adds = param.role == ParamRole::token_table && !model_.config().tied_embeddings;
    if (adds || param.role == ParamRole::position_table) continue;
    std::fill_n(start.begin() + param.offset, param.elements(), std::nan(""));
  }
  return bench_.input(DType::f32, start);
}

void TemplateRig::check_padding(const Unit& unit, const std::vector<float>& accumulator) {
  for (const ParamDesc& param : unit.params)
    for (Index i = param.elements(); i < param.padded_elements(); ++i)
      ASSERT_EQ(accumulator[static_cast<std::size_t>(param.offset + i)], 0.0F)
          << "padding behind " << param.name;
}

void TemplateRig::embed(const reference::Batch& batch, Buffer& output, bool gathered) {
  const Embedding embedding(model_, compute_, shape_);
  const Unit& unit = model_.unit(0);
  if (!gathered) {
    const Buffer ids = bench_.input_raw(batch.ids);
    embedding.forward(
        bench_.ops(), bench_.stream(),
        {.weights = weights_of(0), .ids = ids.as<std::int32_t>(), .output = output.data()});
    bench_.stream().synchronize();
    return;
  }
  const SortedTokens sorted(batch.ids);
  const Index hidden = model_.config().hidden;
  Values rows;
  for (const std::int32_t id : sorted.unique) {
    const auto begin = weights_.at(unit.find(ParamRole::token_table)->name).begin() + id * hidden;
    rows.insert(rows.end(), begin, begin + hidden);
  }
  Values positions(1);
  if (const ParamDesc* table = unit.find(ParamRole::position_table)) {
    positions = weights_.at(table->name);
    positions.resize(static_cast<std::size_t>(shape_.sequence * hidden));
  }
  const Buffer rows_buffer = bench_.input(compute_.type, rows);
  const Buffer positions_buffer = bench_.input(compute_.type, positions);
  const Buffer ids = bench_.input_raw(sorted.renumbered);
  embedding.forward(bench_.ops(), bench_.stream(),
                    {.rows = rows_buffer.data(),
                     .positions = positions_buffer.data(),
                     .ids = ids.as<std::int32_t>(),
                     .output = output.data()});
  bench_.stream().synchronize();
}

HeadBuffers TemplateRig::head_buffers(const Buffer& input, const Buffer& targets,
                                      const Buffer& losses) const {
  return {.weights = weights_of(model_.head_unit()),
          .table = model_.config().tied_embeddings ? weights_of(0) : nullptr,
          .input = input.data(),
          .targets = targets.as<std::int32_t>(),
          .losses = losses.as<float>(),
          .temporary = temporary_.as<std::byte>()};
}

Outcome TemplateRig::train(std::span<const reference::Batch> micro_batches, double scale,
                           const RunOptions& options) {
  const Index layers = model_.config().layers;
  const Block any = block(0);
  const Embedding embedding(model_, compute_, shape_);
  const Head head(model_, compute_, shape_);
  const ops::Ops& ops = bench_.ops();
  Stream& stream = bench_.stream();

  std::vector<Buffer> accumulators;
  for (const Unit& unit : model_.units()) accumulators.push_back(fresh_accumulator(unit));
  const auto gradient = [&](Index unit) {
    return accumulators[static_cast<std::size_t>(unit)].as<float>();
  };
  Buffer recomputed = bench_.scratch(any.recomputed_bytes(options.keep));
  Outcome outcome;

  bool accumulate = false;
  for (const reference::Batch& batch : micro_batches) {
    std::vector<Buffer> boundaries;
    std::vector<Buffer> kept;
    boundaries.push_back(activations());
    embed(batch, boundaries.back(), options.gathered_embedding);

    const auto bind = [&](Index layer) {
      const auto i = static_cast<std::size_t>(layer);
      return BlockBuffers{.weights = weights_of(layer + 1),
                          .input = boundaries[i].data(),
                          .kept = kept[i].as<std::byte>(),
                          .recomputed = recomputed.as<std::byte>(),
                          .temporary = temporary_.as<std::byte>(),
                          .gradient = gradient(layer + 1),
                          .accumulate = accumulate,
                          .rope_cosine = rope_.empty() ? nullptr : rope_[0].as<float>(),
                          .rope_sine = rope_.empty() ? nullptr : rope_[1].as<float>()};
    };
    for (Index layer = 0; layer < layers; ++layer) {
      boundaries.push_back(activations());
      kept.push_back(bench_.scratch(any.kept_bytes(options.keep)));
      BlockBuffers buffers = bind(layer);
      buffers.output = boundaries.back().data();
      block(layer).forward(ops, stream, options.keep, buffers);
    }

    const Buffer targets = bench_.input_raw(batch.targets);
    Buffer losses = bench_.output(DType::f32, shape_.tokens());
    Buffer separate = activations();
    Buffer& d_stream = options.head_in_place ? boundaries.back() : separate;
    HeadBuffers head_binding = head_buffers(boundaries.back(), targets, losses);
    head_binding.gradient_stream = d_stream.data();
    head_binding.gradient = gradient(model_.head_unit());
    head_binding.table_gradient = model_.config().tied_embeddings ? gradient(0) : nullptr;
    head_binding.accumulate = accumulate;
    head_binding.scale = static_cast<float>(scale);
    head.visit(ops, stream, head_binding);

    for (Index layer = layers - 1; layer >= 0; --layer) {
      // What the template may only write is poison again, so nothing survives by accident.
      stream.fill(recomputed.data(), 0xFF, any.recomputed_bytes(options.keep));
      stream.fill(temporary_.data(), 0xFF, kPoisonedTemporary);
      BlockBuffers buffers = bind(layer);
      Buffer output = activations();
      if (options.recompute_output) buffers.output = output.data();
      block(layer).recompute(ops, stream, options.keep, buffers);
      if (options.recompute_output && layer + 1 < layers) {
        stream.synchronize();
        EXPECT_TRUE(optest::same_bits(output.bytes(),
                                      boundaries[static_cast<std::size_t>(layer + 1)].bytes()))
            << "output of layer " << layer;
      }
      buffers.output = nullptr;
      buffers.gradient_stream = d_stream.data();
      block(layer).backward(ops, stream, options.keep, buffers);
      stream.synchronize();
    }

    const SortedTokens sorted(batch.ids);
    const Buffer order = bench_.input_raw(sorted.order);
    const Buffer begins = bench_.input_raw(sorted.begins);
    const Buffer unique = bench_.input_raw(sorted.unique);
    embedding.backward(ops, stream,
                       {.gradient_stream = d_stream.data(),
                        .order = order.as<std::int32_t>(),
                        .begins = begins.as<std::int32_t>(),
                        .unique = unique.as<std::int32_t>(),
                        .uniques = static_cast<Index>(sorted.unique.size()),
                        .gradient = gradient(0),
                        .accumulate_positions = accumulate});
    stream.synchronize();
    std::ranges::copy(losses.values(), std::back_inserter(outcome.losses));
    std::ranges::copy(losses.bytes(), std::back_inserter(outcome.bits));
    static_cast<void>(recomputed.bytes());  // the guard zones
    for (const Buffer& buffer : kept) static_cast<void>(buffer.bytes());
    accumulate = true;
  }

  for (Index u = 0; u < model_.unit_count(); ++u) {
    const Unit& unit = model_.unit(u);
    const Buffer& accumulator = accumulators[static_cast<std::size_t>(u)];
    check_padding(unit, accumulator.raw<float>());
    const Values values = accumulator.values();
    for (const ParamDesc& param : unit.params)
      outcome.gradients[param.name].assign(values.begin() + param.offset,
                                           values.begin() + param.offset + param.elements());
    std::ranges::copy(accumulator.bytes(), std::back_inserter(outcome.bits));
  }
  return outcome;
}

Buffer TemplateRig::run_to_head(const reference::Batch& batch) {
  Buffer x = activations();
  embed(batch, x, false);
  Buffer recomputed = bench_.scratch(block(0).recomputed_bytes(Keep::boundary));
  for (Index layer = 0; layer < model_.config().layers; ++layer) {
    // In place, as generation and evaluation run.
    block(layer).forward(bench_.ops(), bench_.stream(), Keep::boundary,
                         {.weights = weights_of(layer + 1),
                          .input = x.data(),
                          .output = x.data(),
                          .recomputed = recomputed.as<std::byte>(),
                          .temporary = temporary_.as<std::byte>(),
                          .rope_cosine = rope_.empty() ? nullptr : rope_[0].as<float>(),
                          .rope_sine = rope_.empty() ? nullptr : rope_[1].as<float>()});
  }
  bench_.stream().synchronize();
  return x;
}

Values TemplateRig::losses(const reference::Batch& batch) {
  const Head head(model_, compute_, shape_);
  const Buffer input = run_to_head(batch);
  const Buffer targets = bench_.input_raw(batch.targets);
  Buffer losses = bench_.output(DType::f32, shape_.tokens());
  head.visit(bench_.ops(), bench_.stream(), head_buffers(input, targets, losses));
  bench_.stream().synchronize();
  return losses.values();
}

Values TemplateRig::logits(const reference::Batch& batch, Index first, Index count) {
  const Head head(model_, compute_, shape_);
  const Buffer input = run_to_head(batch);
  Buffer none = bench_.scratch(0);
  Buffer out = bench_.output(compute_.type, count * model_.config().vocabulary);
  head.logits(bench_.ops(), bench_.stream(), head_buffers(input, none, none), first, count,
              out.data());
  bench_.stream().synchronize();
  return out.values();
}

}  // namespace megatrain::modeltest
