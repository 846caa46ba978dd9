#include "parallel/conformance/training.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "core/base/bfloat16.h"
#include "core/base/scatter.h"
#include "core/plan/writers.h"

namespace megatrain::conformance {

namespace {

constexpr std::size_t at(Index value) { return static_cast<std::size_t>(value); }

/// The sequences of a step of all ranks: a function of the step's number. Some targets do not
/// count, unevenly spread.
std::vector<std::int32_t> step_tokens(const Training& training, Index step) {
  const Index sample = training.choices.micro_batch.sequence + 1;
  std::vector<std::int32_t> tokens(at(training.choices.step_sequences() * sample));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::uint64_t bits = scatter((static_cast<std::uint64_t>(step) << 32) + i + kGoldenRatio);
    const bool begins = i % at(sample) == 0;
    tokens[i] = !begins && bits % 11 == 0
                    ? -1
                    : static_cast<std::int32_t>((bits >> 8) % at(training.config.vocabulary));
  }
  return tokens;
}

Batch rank_batch(const Training& training, const Choices& choices, const DataShare& share,
                 Index step) {
  const std::vector<std::int32_t> all = step_tokens(training, step);
  const Index sample = choices.micro_batch.sequence + 1;
  Index valid = 0;
  for (std::size_t i = 0; i < all.size(); ++i) valid += i % at(sample) != 0 && all[i] >= 0 ? 1 : 0;
  const std::size_t own = at(choices.step_sequences() * sample);
  Batch batch =
      make_batch(choices, training.config, std::span(all).subspan(own * at(share.rank), own));
  batch.inputs.scale = token_scale(valid);
  return batch;
}

/// Tensors to which every rank gives what it holds.
class WholeTensors {
 public:
  explicit WholeTensors(const Model& whole) {
    for (const Unit& unit : whole.units())
      for (const ParamDesc& param : unit.params) {
        tensors_.push_back({param.name, std::vector<float>(at(param.elements()))});
        held_.emplace_back(at(param.elements()), false);
      }
  }

  /// @param first   of `values`, counted in the rank's part of the parameter
  void add(std::size_t tensor, const ParamDesc& param, Index first, std::span<const float> values) {
    param.for_each_run(first, static_cast<Index>(values.size()), [&](const PartRun& run) {
      for (Index i = 0; i < run.count; ++i) {
        const float value = values[at(run.part - first + i)];
        float& whole = tensors_[tensor].values[at(run.whole + i)];
        // Bits: what is not a number is the same, too, when it is.
        const bool same =
            std::bit_cast<std::uint32_t>(whole) == std::bit_cast<std::uint32_t>(value);
        if (held_[tensor][at(run.whole + i)] && !same)
          throw ConformanceError(
              fmt::format("element {} of '{}' is {} on one rank and {} on another", run.whole + i,
                          param.name, whole, value));
        whole = value;
        held_[tensor][at(run.whole + i)] = true;
      }
    });
  }

  std::vector<WholeTensor> take(const std::string& what) {
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor)
      if (const auto none = std::ranges::find(held_[tensor], false); none != held_[tensor].end())
        throw ConformanceError(fmt::format("no rank holds element {} of the {} '{}'",
                                           none - held_[tensor].begin(), what,
                                           tensors_[tensor].name));
    return std::move(tensors_);
  }

 private:
  std::vector<WholeTensor> tensors_;
  std::vector<std::vector<bool>> held_;
};

/// A rank's own slice of a gradient slab, widened.
std::vector<float> gradient_of(const HostStore& store, Index unit, const ParamDesc& param,
                               DType wire) {
  const ElementRange held = store.held(unit, param);
  const Index begin =
      param.offset + held.first - store.slicing().begin(store.model().unit(unit).slab_elements);
  std::vector<float> values(at(held.count()));
  const std::byte* slab = store.gradient(unit) + begin * size_of(wire);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (wire == DType::f32) {
      std::memcpy(&values[i], slab + i * sizeof(float), sizeof(float));
    } else {
      bfloat16 value{};
      std::memcpy(&value, slab + i * sizeof(value), sizeof(value));
      values[i] = to_float(value);
    }
  }
  return values;
}

/// Gathers what all ranks came to.
class Collected {
 public:
  explicit Collected(const ModelConfig& config)
      : whole_(config), gradients_(whole_), parameters_(whole_) {}

  void add(const HostStore& store, const std::vector<double>& losses,
           const std::vector<double>& norms, const std::vector<std::vector<float>>& gradients) {
    const std::lock_guard lock(mutex_);
    if (result_.losses.empty()) {
      result_.losses = losses;
      result_.norms = norms;
    }
    if (result_.losses != losses) throw ConformanceError("the ranks report different losses");
    if (result_.norms != norms) throw ConformanceError("the ranks report different norms");
    std::size_t tensor = 0;
    for (Index unit = 0; unit < store.model().unit_count(); ++unit)
      for (const ParamDesc& param : store.model().unit(unit).params) {
        const ElementRange held = store.held(unit, param);
        std::vector<float> values(at(held.count()));
        store.read_master(unit, param, held.first, values);
        parameters_.add(tensor, param, held.first, values);
        gradients_.add(tensor, param, held.first, gradients[tensor]);
        ++tensor;
      }
  }

  TrainingResult take() {
    result_.gradients = gradients_.take("gradient of");
    result_.parameters = parameters_.take("parameter");
    return std::move(result_);
  }

 private:
  std::mutex mutex_;
  Model whole_;
  WholeTensors gradients_, parameters_;
  TrainingResult result_;
};

void train_rank(const Training& training, TrainingRank own, Rank& rank, Collected& collected) {
  const Model model(training.config, own.partition);
  Choices choices = training.choices;
  choices.slicing = own.slicing;
  choices.replicas = own.replicas;
  if (choices.micro_batches % own.share.ranks != 0)
    throw ConformanceError(fmt::format("{} micro-batches do not divide among {} ranks",
                                       choices.micro_batches, own.share.ranks));
  choices.micro_batches /= own.share.ranks;

  const ops::Ops ops = ops::make_ops(rank.device(), choices.compute.type);
  ThreadPool pool(1);
  HostStore store(model,
                  {.master = choices.master,
                   .moments = choices.moments,
                   .gradient_bytes = choices.gradient_bytes(),
                   .slicing = choices.slicing},
                  rank.device(), pool);
  initialize(store, training.seed, pool);
  EnginePlans plans;
  plans.train = make_plan(model, choices);
  Engine engine(rank.device(), ops, model, store, pool, std::move(plans), std::move(own.groups));
  engine.poison_released_slots(true);

  std::vector<double> losses;
  std::vector<double> norms;
  for (Index step = 0; step < training.steps; ++step) {
    const Batch batch = rank_batch(training, choices, own.share, step);
    const StepResult result = engine.train_step(batch.inputs, training.rule);
    losses.push_back(result.loss_sum);
    norms.push_back(result.decision.norm);
  }
  std::vector<std::vector<float>> gradients;
  for (Index unit = 0; unit < model.unit_count(); ++unit)
    for (const ParamDesc& param : model.unit(unit).params)
      gradients.push_back(gradient_of(store, unit, param, choices.wire()));
  engine.flush();
  collected.add(store, losses, norms, gradients);
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

/// The largest difference so far, and where it is.
struct Difference {
  double relative = 0;
  std::string where = {};

  void consider(double actual, double expected, double scale, const auto& name) {
    const double difference = actual == expected ? 0 : std::abs(actual - expected) / scale;
    // What is not a number is farther away than anything.
    if (std::isnan(relative) || difference <= relative) return;
    relative = difference;
    where = fmt::format("{} is {}, but {} with one rank", name(), actual, expected);
  }
};

Difference between(const std::string& what, const std::vector<double>& actual,
                   const std::vector<double>& expected) {
  Difference difference;
  for (std::size_t step = 0; step < expected.size(); ++step)
    difference.consider(actual[step], expected[step], std::abs(expected[step]),
                        [&] { return fmt::format("the {} of step {}", what, step + 1); });
  return difference;
}

Difference between(const std::string& what, const std::vector<WholeTensor>& actual,
                   const std::vector<WholeTensor>& expected) {
  double most = 0;
  for (const WholeTensor& tensor : expected) most = std::max(most, largest(tensor.values));
  Difference difference;
  for (std::size_t t = 0; t < expected.size(); ++t) {
    const WholeTensor& right = expected[t];
    const double scale = std::max(largest(right.values), most / 100);
    for (std::size_t i = 0; i < right.values.size(); ++i)
      difference.consider(
          static_cast<double>(actual[t].values[i]), static_cast<double>(right.values[i]), scale,
          [&] { return fmt::format("element {} of the {} '{}'", i, what, right.name); });
  }
  return difference;
}

struct Differences {
  Differences(const TrainingResult& result, const TrainingResult& expected)
      : loss(between("loss", result.losses, expected.losses)),
        norm(between("norm", result.norms, expected.norms)),
        gradient(between("gradient of", result.gradients, expected.gradients)),
        parameter(between("parameter", result.parameters, expected.parameters)) {}
  Difference loss, norm, gradient, parameter;
};

void require_within(const Difference& difference, double bound) {
  if (!(difference.relative <= bound))
    throw ConformanceError(fmt::format("{}: they differ by {:.2g} of its size, {:.2g} are allowed",
                                       difference.where, difference.relative, bound));
}

}  // namespace

TrainingResult train(const Setting& setting, const Training& training, const MakeRank& make_rank) {
  Collected collected(training.config);
  run_ranks(setting, [&](Rank& rank) { train_rank(training, make_rank(rank), rank, collected); });
  return collected.take();
}

void check_training(const Setting& setting, const Training& training, const MakeRank& make_rank,
                    const Distance& bound) {
  const TrainingResult expected = train({}, training, [](Rank&) { return TrainingRank{}; });
  check_close(train(setting, training, make_rank), expected, bound);
}

Distance distance(const TrainingResult& result, const TrainingResult& expected) {
  const Differences found(result, expected);
  return {found.loss.relative, found.norm.relative, found.gradient.relative,
          found.parameter.relative};
}

void check_close(const TrainingResult& result, const TrainingResult& expected,
                 const Distance& bound) {
  const Differences found(result, expected);
  require_within(found.loss, bound.loss);
  require_within(found.norm, bound.norm);
  require_within(found.gradient, bound.gradient);
  require_within(found.parameter, bound.parameter);
}

}  // namespace megatrain::conformance
