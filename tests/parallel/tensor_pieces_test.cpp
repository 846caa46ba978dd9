/// @file
/// Each piece of a layer in parts: conjugate to its backward, and equal to the piece of one rank.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/base/scatter.h"
#include "core/model/templates.h"
#include "parallel/conformance/conformance.h"
#include "parallel/tensor/tensor_parts.h"
#include "tests/model/test_configs.h"

namespace megatrain::conformance {
namespace {

constexpr MicroBatchShape kShape{.batch = 2, .sequence = 11};
constexpr ComputeConfig kCompute{.head_chunk = 9};
/// fp32 sums in another order.
constexpr double kBound = 1e-5;

ModelConfig config_of(const std::function<void(ModelConfig&)>& change = [](ModelConfig&) {}) {
  ModelConfig config = modeltest::small_llama();
  config.heads = 8;
  config.kv_heads = 4;
  config.intermediate = 40;
  change(config);
  return config;
}

/// A number that belongs to an element of a whole tensor, in [-1, 1).
float noise(std::string_view name, Index element) {
  std::uint64_t key = static_cast<std::uint64_t>(element);
  for (const char c : name) key = scatter(key + static_cast<unsigned char>(c));
  return static_cast<float>(static_cast<double>(key >> 11) * 0x1p-52 - 1.0);
}

/// A rank with its part of a model, and memory.
class Part {
 public:
  /// @param name  of what the rank does with it
  Part(Rank& rank, const ModelConfig& config, const std::string& name = "parts")
      : rank_(rank),
        ops_(ops::make_ops(rank.device(), DType::f32)),
        parts_(make_tensor_parts(rank.connect(name, rank.axes().line(rank.rank(), Axis::tensor)))),
        model_(config, parts_->partition()) {
    for (const Unit& unit : model_.units()) {
      slabs_.push_back(floats(unit.slab_elements));
      for (const ParamDesc& param : unit.params)
        param.for_each_run(0, param.elements(), [&](const PartRun& run) {
          for (Index i = 0; i < run.count; ++i)
            slabs_.back()[param.offset + run.part + i] =
                0.3F * noise(param.name, run.whole + i) + (param.init == Init::ones ? 1.0F : 0.0F);
        });
    }
  }
  ~Part() { rank_.stream().synchronize(); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  /// Zeros that live as long as the part.
  float* floats(Index count) {
    memory_.push_back(rank_.device().allocate(round_up(count * 4, 4096)));
    std::memset(memory_.back()->data(), 0, static_cast<std::size_t>(count) * 4);
    return reinterpret_cast<float*>(memory_.back()->data());
  }
  std::byte* bytes(Index count) {
    return reinterpret_cast<std::byte*>(floats(ceil_div(count, Index{4})));
  }
  float* noisy(std::string_view name, Index count) {
    float* data = floats(count);
    for (Index i = 0; i < count; ++i) data[i] = noise(name, i);
    return data;
  }
  std::int32_t* tokens(std::string_view name, bool some_missing) {
    auto* ids = reinterpret_cast<std::int32_t*>(floats(kShape.tokens()));
    for (Index t = 0; t < kShape.tokens(); ++t)
      ids[t] = some_missing && t % 5 == 2
                   ? -1
                   : static_cast<std::int32_t>((noise(name, t) + 1) / 2 *
                                               static_cast<float>(model_.config().vocabulary));
    return ids;
  }

  [[nodiscard]] const Model& model() const { return model_; }
  [[nodiscard]] const ops::Ops& ops() const { return ops_; }
  [[nodiscard]] const PartGroup& group() const { return *parts_; }
  [[nodiscard]] Stream& stream() const { return rank_.stream(); }
  [[nodiscard]] const std::byte* slab(Index unit) const {
    return reinterpret_cast<const std::byte*>(slabs_[static_cast<std::size_t>(unit)]);
  }
  Launch launch() {
    constexpr Index kBytes = Index{1} << 20;
    return {.ops = ops_,
            .stream = stream(),
            .workspace = {.data = bytes(kBytes), .bytes = kBytes},
            .parts = *parts_};
  }
  /// Appends what all parts found of a unit's gradients, as the whole model has them.
  void append_gradients(std::vector<float>& result, Index unit, const float* gradient) {
    for (const ParamDesc& param : model_.unit(unit).params) {
      Index count = 1;
      for (const Index extent : param.whole_shape) count *= extent;
      float* all = floats(count);
      stream().synchronize();
      // What each part finds whole is one part's to say; others must find the same.
      if (param.counted() || param.shard.sum_gradient)
        param.for_each_run(0, param.elements(), [&](const PartRun& run) {
          std::memcpy(all + run.whole, gradient + param.offset + run.part,
                      static_cast<std::size_t>(run.count) * 4);
        });
      parts_->sum(stream(), all, count, DType::f32);
      stream().synchronize();
      if (!param.shard.divided() && !param.shard.sum_gradient) {
        EXPECT_EQ(std::memcmp(all, gradient + param.offset, static_cast<std::size_t>(count) * 4), 0)
            << param.name << " differs between parts";
      }
      result.insert(result.end(), all, all + count);
    }
  }

 private:
  Rank& rank_;
  ops::Ops ops_;
  std::unique_ptr<PartGroup> parts_;
  Model model_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::vector<float*> slabs_;
};

void append(std::vector<float>& result, const float* data, Index count) {
  result.insert(result.end(), data, data + count);
}

Linear linear_of(const Model& model, ParamRole role, Index in) {
  return {model.unit(1), in, model.config().weights_in_out, std::array{Linear::Part{role}}};
}

class Pieces : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Pieces, ::testing::Values(1, 2, 4));

/// A linear map that needs no more than a part: `map(part, from, to)`.
LinearMap with_part(const ModelConfig& config, const std::string& name,
                    const std::function<void(Part&, const float*, float*)>& map) {
  return [=](Rank& rank, const float* from, float* to) {
    Part part(rank, config, name);
    map(part, from, to);
    part.stream().synchronize();
  };
}

TEST_P(Pieces, ColumnParallelLinearIsConjugate) {
  for (const bool in_out : {false, true}) {
    const ModelConfig config = config_of([&](ModelConfig& c) { c.weights_in_out = in_out; });
    const Index rows = kShape.tokens();
    check_conjugate(
        along(Axis::tensor, GetParam()),
        {.name = "column-parallel linear",
         .input = {.count = rows * config.hidden, .replicated = true},
         .output = {.count = rows * config.intermediate / GetParam()},
         .forward = with_part(config, "forward",
                              [=](Part& part, const float* x, float* y) {
                                linear_of(part.model(), ParamRole::up, config.hidden)
                                    .forward(part.launch(), rows, part.slab(1), x, y);
                              }),
         .backward = with_part(config, "backward", [=](Part& part, const float* dy, float* dx) {
           linear_of(part.model(), ParamRole::up, config.hidden)
               .backward_input(part.launch(), rows, part.slab(1), dy, dx);
         })});
  }
}

TEST_P(Pieces, RowParallelLinearIsConjugate) {
  for (const bool in_out : {false, true}) {
    const ModelConfig config = config_of([&](ModelConfig& c) { c.weights_in_out = in_out; });
    const Index rows = kShape.tokens();
    const Index in = config.intermediate / GetParam();
    check_conjugate(
        along(Axis::tensor, GetParam()),
        {.name = "row-parallel linear",
         .input = {.count = rows * in},
         .output = {.count = rows * config.hidden, .replicated = true},
         .forward = with_part(config, "forward",
                              [=](Part& part, const float* x, float* y) {
                                linear_of(part.model(), ParamRole::down, in)
                                    .forward(part.launch(), rows, part.slab(1), x, y);
                              }),
         .backward = with_part(config, "backward", [=](Part& part, const float* dy, float* dx) {
           linear_of(part.model(), ParamRole::down, in)
               .backward_input(part.launch(), rows, part.slab(1), dy, dx);
         })});
  }
}

/// Tokens sorted by id, as the embedding's backward wants them.
void sort_tokens(Part& part, EmbeddingBuffers& buffers) {
  const Index tokens = kShape.tokens();
  const auto integers = [&](Index count) {
    return reinterpret_cast<std::int32_t*>(part.floats(count));
  };
  std::int32_t* order = integers(tokens);
  std::int32_t* begins = integers(tokens + 1);
  std::int32_t* unique = integers(tokens);
  for (Index t = 0; t < tokens; ++t) order[t] = static_cast<std::int32_t>(t);
  std::stable_sort(order, order + tokens,
                   [&](auto a, auto b) { return buffers.ids[a] < buffers.ids[b]; });
  for (Index i = 0; i < tokens; ++i)
    if (i == 0 || buffers.ids[order[i]] != buffers.ids[order[i - 1]]) {
      begins[buffers.uniques] = static_cast<std::int32_t>(i);
      unique[buffers.uniques++] = buffers.ids[order[i]];
    }
  begins[buffers.uniques] = static_cast<std::int32_t>(tokens);
  buffers.order = order;
  buffers.begins = begins;
  buffers.unique = unique;
}

TEST_P(Pieces, EmbeddingIsConjugateInItsTable) {
  const ModelConfig config = config_of();
  const Index table = ceil_div(config.vocabulary, Index{GetParam()}) * config.hidden;
  const Index activation = kShape.tokens() * config.hidden;
  check_conjugate(
      along(Axis::tensor, GetParam()),
      {.name = "embedding",
       .input = {.count = table},
       .output = {.count = activation, .replicated = true},
       .forward = with_part(config, "forward",
                            [=](Part& part, const float* from, float* to) {
                              EmbeddingBuffers buffers;
                              buffers.weights = reinterpret_cast<const std::byte*>(from);
                              buffers.ids = part.tokens("ids", false);
                              buffers.output = to;
                              Embedding(part.model(), kCompute, kShape)
                                  .forward(part.ops(), part.stream(), buffers, part.group());
                            }),
       .backward = with_part(config, "backward", [=](Part& part, const float* from, float* to) {
         EmbeddingBuffers buffers;
         buffers.ids = part.tokens("ids", false);
         sort_tokens(part, buffers);
         buffers.gradient_stream = from;
         buffers.gradient = to;
         std::memset(to, 0, static_cast<std::size_t>(table) * 4);
         Embedding(part.model(), kCompute, kShape).backward(part.ops(), part.stream(), buffers);
       })});
}

/// Output, gradients and d(input) of a block, of every way to run it.
std::vector<float> block_results(Rank& rank, const ModelConfig& config, Keep keep) {
  Part part(rank, config);
  const Block block(part.model(), 1, kCompute, kShape);
  const Index activation = kShape.tokens() * config.hidden;
  const RopeTables tables = rope_tables(config, kShape.sequence);
  BlockBuffers buffers;
  buffers.weights = part.slab(1);
  buffers.input = part.noisy("input", activation);
  float* output = part.floats(activation);
  buffers.output = output;
  buffers.kept = part.bytes(block.kept_bytes(keep) + 256);
  buffers.recomputed = part.bytes(block.recomputed_bytes(keep));
  buffers.temporary = part.bytes(block.temporary_bytes());
  float* stream = part.noisy("gradient", activation);
  buffers.gradient_stream = stream;
  buffers.gradient = part.floats(part.model().unit(1).slab_elements);
  buffers.rope_cosine = tables.cosine.data();
  buffers.rope_sine = tables.sine.data();
  block.forward(part.ops(), part.stream(), keep, buffers, part.group());
  part.stream().synchronize();
  std::vector<float> result;
  append(result, output, activation);
  buffers.output = nullptr;
  block.recompute(part.ops(), part.stream(), keep, buffers, part.group());
  block.backward(part.ops(), part.stream(), keep, buffers, part.group());
  part.stream().synchronize();
  append(result, stream, activation);
  part.append_gradients(result, 1, buffers.gradient);
  return result;
}

TEST_P(Pieces, BlocksAreWhatTheyAreOnOneRank) {
  const std::vector<ModelConfig> configs = {config_of(), config_of([](ModelConfig& c) {
                                              c.qkv_bias = c.output_bias = c.mlp_bias = c.qk_norm =
                                                  true;
                                              c.windows = {5, 0};
                                            }),
                                            [] {
                                              ModelConfig c = modeltest::small_gpt2();
                                              c.heads = c.kv_heads = 4;
                                              c.intermediate = 48;
                                              return c;
                                            }()};
  for (const ModelConfig& config : configs)
    for (const Keep keep : {Keep::boundary, Keep::attention, Keep::all}) {
      SCOPED_TRACE(static_cast<int>(keep));
      check_equal_to_one(
          along(Axis::tensor, GetParam()),
          [&](Rank& rank) { return block_results(rank, config, keep); }, kBound);
    }
}

TEST_P(Pieces, EmbeddingsAreWhatTheyAreOnOneRank) {
  ModelConfig config = modeltest::small_gpt2();
  config.heads = config.kv_heads = 4;
  config.intermediate = 48;
  // One part alone has a token's row; the positions are added to it and to zeros as they are.
  check_equal_to_one(
      along(Axis::tensor, GetParam()),
      [&](Rank& rank) {
        Part part(rank, config);
        const Embedding embedding(part.model(), kCompute, kShape);
        const Index activation = kShape.tokens() * config.hidden;
        float* output = part.floats(activation);
        EmbeddingBuffers buffers;
        buffers.weights = part.slab(0);
        buffers.ids = part.tokens("ids", false);
        buffers.output = output;
        sort_tokens(part, buffers);
        buffers.gradient_stream = part.noisy("gradient", activation);
        buffers.gradient = part.floats(part.model().unit(0).slab_elements);
        embedding.forward(part.ops(), part.stream(), buffers, part.group());
        embedding.backward(part.ops(), part.stream(), buffers);
        part.stream().synchronize();
        std::vector<float> result;
        append(result, output, activation);
        part.append_gradients(result, 0, buffers.gradient);
        return result;
      },
      0);
}

TEST_P(Pieces, LossesAndLogitsAreWhatTheyAreOnOneRank) {
  for (const bool tied : {false, true})
    for (const Index vocabulary : {67, 5}) {  // of 5, the last of four parts has none
      SCOPED_TRACE(vocabulary);
      const ModelConfig config = config_of([&](ModelConfig& c) {
        c.tied_embeddings = tied;
        c.vocabulary = vocabulary;
      });
      check_equal_to_one(
          along(Axis::tensor, GetParam()),
          [&](Rank& rank) {
            Part part(rank, config);
            const Head head(part.model(), kCompute, kShape);
            const Index unit = part.model().head_unit();
            const Index activation = kShape.tokens() * config.hidden;
            HeadBuffers buffers;
            buffers.weights = part.slab(unit);
            buffers.table = part.slab(0);
            buffers.input = part.noisy("input", activation);
            buffers.targets = part.tokens("targets", true);
            buffers.losses = part.floats(kShape.tokens());
            buffers.temporary = part.bytes(head.temporary_bytes());
            float* logits = part.floats(3 * config.vocabulary);
            head.logits(part.ops(), part.stream(), buffers, 4, 3, logits, part.group());
            head.visit(part.ops(), part.stream(), buffers, part.group());
            part.stream().synchronize();
            std::vector<float> result;
            append(result, logits, 3 * config.vocabulary);
            append(result, buffers.losses, kShape.tokens());
            float* stream = part.floats(activation);
            buffers.gradient_stream = stream;
            buffers.gradient = part.floats(part.model().unit(unit).slab_elements);
            buffers.table_gradient = part.floats(part.model().unit(0).slab_elements);
            buffers.scale = 0.25F;
            head.visit(part.ops(), part.stream(), buffers, part.group());
            part.stream().synchronize();
            append(result, stream, activation);
            part.append_gradients(result, unit, buffers.gradient);
            if (tied) part.append_gradients(result, 0, buffers.table_gradient);
            return result;
          },
          kBound);
    }
}

/// A piece whose collective is forgotten does not pass for one that conforms.
TEST(PiecesThatDoNotConform, AreFound) {
  const ModelConfig config = config_of();
  const Index rows = kShape.tokens();
  const ConjugatePair pair{
      .name = "column-parallel linear",
      .input = {.count = rows * config.hidden, .replicated = true},
      .output = {.count = rows * config.intermediate / 2},
      .forward = with_part(config, "forward",
                           [=](Part& part, const float* x, float* y) {
                             linear_of(part.model(), ParamRole::up, config.hidden)
                                 .forward(part.launch(), rows, part.slab(1), x, y);
                           }),
      .backward = with_part(config, "backward", [=](Part& part, const float* dy, float* dx) {
        Launch own = part.launch();
        const Launch without{.ops = own.ops, .stream = own.stream, .workspace = own.workspace};
        linear_of(part.model(), ParamRole::up, config.hidden)
            .backward_input(without, rows, part.slab(1), dy, dx);
      })};
  EXPECT_THROW(check_conjugate(along(Axis::tensor, 2), pair), ConformanceError);
}

}  // namespace
}  // namespace megatrain::conformance
