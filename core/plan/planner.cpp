#include "core/plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "core/plan/costs.h"
#include "core/plan/forced.h"

namespace megatrain {

namespace {

/// Tokens of a micro-batch at which matrix products run at their best rate.
constexpr Index kGoodMicroBatchTokens = 16384;
/// Every micro-batch of every block is an instruction of its own: more would take longer to plan
/// than to run.
constexpr Index kMostSequences = 16384;
/// Instructions of a step above which plans are not compared: writing one takes seconds then.
constexpr Index kMostCompared = 100'000;
/// Shares of the boundaries, in quarters, that are tried on the device.
constexpr Index kBoundaryQuarters = 4;
/// Shares of the units, in eighths, whose states are tried on the device, besides the first few
/// alone, which everything waits for.
constexpr std::array<Index, 4> kStateEighths = {1, 2, 4, 8};
/// Choices that save less than this are not worth their memory: predictions are not that exact.
constexpr double kWorthwhile = 0.999;
/// In steps the host updates at 0.7 to 1.03 times the rate that was measured: what else the machine
/// runs shares its memory. Units too many on the device cost less than units that are waited for.
constexpr double kCaution = 0.85;
constexpr double kNever = std::numeric_limits<double>::infinity();
/// The same for more waves than memory asks for, which take host memory too.
constexpr double kWorthMoreWaves = 0.98;
/// Micro-batches of a block that may wait for the link, so that it goes on while blocks compute
/// that spill nothing.
constexpr Index kBurst = 4;
/// Room for the logits of a head chunk: so much that the product that makes the table's gradient
/// computes longer than it reads and writes the fp32 accumulator.
constexpr Index kLogitsBytes = Index{640} << 20;

/// Tokens of a head chunk: a function of the model alone, because it decides bits.
Index default_head_chunk(const Model& model, DType compute) {
  const Index row = model.part_config().vocabulary * size_of(compute);
  const Index chunk = kLogitsBytes / row / 128 * 128;
  return std::clamp<Index>(chunk, 128, 8192);
}

std::vector<Index> divisors_descending(Index value) {
  std::vector<Index> divisors;
  for (Index d = 1; d <= value; ++d)
    if (value % d == 0) divisors.push_back(d);
  std::ranges::reverse(divisors);
  return divisors;
}

class Chooser {
 public:
  Chooser(const Model& model, const PlanRequest& request)
      : model_(model),
        request_(request),
        layers_(model.config().layers),
        budget_(request.device_memory - request.device_reserve) {}

  Choices run() {
    if (leanest(1, 1).graphs && !request_.device_graphs)
      throw UserError(
          "graphs=on cannot be met: the device launches kernels one by one. Leave it out");
    for (const Index batch : micro_batch_candidates())
      if (const std::optional<Choices> choices = best_of(batch)) {
        validate(*choices, model_);
        return *choices;
      }
    refuse();
  }

 private:
  /// The best choices for a micro-batch; none where none fit. That is the fewest waves, unless more
  /// are faster: each fetches the model and carries its gradients once more, but keeps more of what
  /// backward needs.
  std::optional<Choices> best_of(Index batch) const {
    std::optional<Choices> best;
    double fastest = 0;
    for (const Index waves : wave_candidates(request_.sequences / batch)) {
      Choices choices = leanest(batch, waves);
      if (choices.waves > choices.micro_batches) continue;
      validate(choices, model_);
      relieve_host(choices);
      if (!fits(choices)) continue;
      if (request_.purpose == Purpose::train) improve(choices);
      if (!compares(choices) || waves_decide_bits(choices)) return choices;
      const double time = seconds(choices);
      if (!best || time < fastest * kWorthMoreWaves) {
        best = choices;
        fastest = time;
      }
      // Shorter waves could keep no more.
      if (std::ranges::count(choices.keep, Keep::all) == layers_) break;
    }
    return best;
  }

  /// Whether plans are told apart by their predicted times.
  [[nodiscard]] bool compares(const Choices& choices) const {
    return request_.rates && request_.purpose == Purpose::train &&
           3 * layers_ * choices.micro_batches <= kMostCompared;
  }

  /// Then rates, which differ from machine to machine, have no say.
  [[nodiscard]] bool waves_decide_bits(const Choices& choices) const {
    return model_.config().tied_embeddings || choices.ranks() > 1;
  }

  /// As large as matrix products profit from, then ever smaller.
  std::vector<Index> micro_batch_candidates() const {
    if (is_forced(request_, "micro-batch")) {
      Choices choices = leanest(1, 1);
      return {choices.micro_batch.batch};
    }
    std::vector<Index> candidates;
    for (const Index batch : divisors_descending(request_.sequences))
      if (batch == 1 || batch * request_.sequence <= kGoodMicroBatchTokens)
        candidates.push_back(batch);
    return candidates;
  }

  /// The fewest first: each further one costs a fetch and a carry of the whole model.
  std::vector<Index> wave_candidates(Index micro_batches) const {
    if (is_forced(request_, "waves")) return {1};  // leanest() applies the forced number
    if (is_forced(request_, "device-states") && leanest(1, 1).device_states > 0) return {1};
    std::vector<Index> candidates;
    for (Index waves = 1; waves <= micro_batches; waves *= 2) candidates.push_back(waves);
    return candidates;
  }

  /// The choices that need the least device memory for a micro-batch, forced ones applied.
  Choices leanest(Index batch, Index waves) const {
    Choices choices;
    choices.purpose = request_.purpose;
    choices.compute = request_.compute;
    choices.compute.head_chunk = default_head_chunk(model_, request_.compute.type);
    choices.master = request_.master;
    choices.moments = request_.moments;
    choices.slicing = request_.slicing;
    choices.replicas = request_.replicas;
    choices.micro_batch = {batch, request_.sequence};
    choices.micro_batches = request_.sequences / batch;
    choices.waves = waves;
    choices.staging_elements = round_up(model_.max_block_elements(), ops::kNormChunk);
    const Index wave_tokens = choices.micro_batch.tokens() * ceil_div(choices.micro_batches, waves);
    if (!model_.config().tied_embeddings && choices.slicing.count == 1 &&
        model_.partition().count == 1 && 2 * wave_tokens <= model_.config().vocabulary)
      choices.embedding = EmbeddingMode::rows;
    for (const auto& [name, value] : request_.forced) force(choices, model_, name, value);
    if (!is_forced(request_, "slots"))
      choices.slots =
          std::min(std::max<Index>(2, choices.segment + 1), std::max<Index>(2, layers_));
    return choices;
  }

  /// The smallest n of [low, high] for which `holds`, which once true stays true; high + 1 for
  /// none.
  static Index first_that(Index low, Index high, const std::function<bool(Index)>& holds) {
    for (++high; low < high;) {
      const Index middle = low + (high - low) / 2;
      if (holds(middle))
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  /// The leanest choices spill every boundary. Where the host has no room for that, as many stay on
  /// the device as it takes, or as fit there.
  void relieve_host(Choices& choices) const {
    if (request_.purpose != Purpose::train || request_.host_memory == 0 ||
        is_forced(request_, "device-boundaries"))
      return;
    const auto bytes = [&](Index n) {
      Choices attempt = choices;
      attempt.device_boundaries = n;
      return needs(attempt);
    };
    const Index segments = ceil_div(layers_, choices.segment);
    const Index wanted =
        first_that(0, segments, [&](Index n) { return bytes(n).host() <= request_.host_memory; });
    const Index too_many =
        first_that(0, segments, [&](Index n) { return bytes(n).device > budget_; });
    choices.device_boundaries = std::max<Index>(0, std::min(wanted, too_many - 1));
  }

  /// What a plan allocates, and what the driver does for it.
  [[nodiscard]] PlanBytes needs(const Choices& choices) const {
    PlanBytes bytes = plan_bytes(model_, choices);
    bytes.device += graph_bytes(model_, choices);
    if (request_.page_tables) bytes.device += page_table_bytes(bytes.host());
    return bytes;
  }

  [[nodiscard]] bool fits(const Choices& choices) const {
    const PlanBytes bytes = needs(choices);
    return bytes.device <= budget_ &&
           (request_.host_memory == 0 || bytes.host() <= request_.host_memory);
  }

  /// The most of something that still fits: tries `set(choices, n)` for n in [low, high].
  void grow(Choices& choices, std::string_view name, Index low, Index high,
            const std::function<void(Choices&, Index)>& set) const {
    if (is_forced(request_, name)) return;
    // The first was asked about, or is what there is already.
    const Index too_many = first_that(low + 1, high, [&](Index n) {
      Choices attempt = choices;
      set(attempt, n);
      return !fits(attempt);
    });
    set(choices, too_many - 1);
  }

  /// Makes the most of what the budget leaves. Graphs are taken where the issuing thread is what
  /// the device waits for, and else not: they take memory.
  void improve(Choices& choices) const {
    const Choices lean = choices;
    choices = spend_best(lean);
    if (!request_.device_graphs || is_forced(request_, "graphs") || !compares(lean) ||
        model_.partition().count > 1)
      return;
    const double without = seconds(choices);
    const auto with_graphs = [](Choices of) {
      of.graphs = true;
      return of;
    };
    const auto pays = [&](const Choices& attempt) {
      return seconds(attempt) < without * kWorthwhile;
    };
    Choices attempt = with_graphs(choices);
    if (!pays(attempt)) return;
    if (!fits(attempt)) {
      if (!fits(with_graphs(lean))) return;
      attempt = spend_best(with_graphs(lean));
      if (!pays(attempt)) return;
    }
    choices = attempt;
  }

  /// Spends what the budget leaves where it saves most time. Without rates: on boundaries that need
  /// no spill, then on intermediates that need no recompute, a third slot, weights that need no
  /// second fetch. With rates that is the first of several ways, of which the simulator tells the
  /// fastest: where copies hide under the computing a spilled boundary costs nothing and its memory
  /// saves a recompute, where they do not weights come first.
  [[nodiscard]] Choices spend_best(const Choices& lean) const {
    const Index segments = ceil_div(layers_, lean.segment);
    const bool whole_blocks = whole_blocks_first(lean);
    if (!compares(lean)) return spend(lean, {.boundaries = segments, .whole_blocks = whole_blocks});
    Choices choices = lean;
    double fastest = kNever;
    const auto consider = [&](const Choices& attempt) {
      const double time = seconds(attempt);
      if (time > fastest * kWorthwhile) return time;
      fastest = time;
      choices = attempt;
      return time;
    };
    const Index least = lean.device_boundaries;
    for (Index quarter = kBoundaryQuarters; quarter >= 0; --quarter)
      for (const bool weights_first : {false, true}) {
        const Index boundaries = least + (segments - least) * quarter / kBoundaryQuarters;
        consider(spend(lean, {.boundaries = boundaries,
                              .weights_first = weights_first,
                              .whole_blocks = whole_blocks}));
      }
    Choices holding = lean;
    for (const Index units : state_candidates(lean)) {
      hold_states(holding, model_, units);
      if (is_forced(request_, "resident") && holding.resident != lean.resident) break;
      if (!fits(holding)) break;
      for (const Index boundaries : {segments, least})
        consider(spend(holding, {.boundaries = boundaries, .whole_blocks = whole_blocks}));
    }
    // Where the host has room, it keeps what the device cannot.
    if (!spills_kept(lean)) return choices;
    holding = lean;
    hold_states(holding, model_, choices.device_states);
    for (Choices base : {lean, holding})
      for (const Index buffers : {lean.spill_buffers, kBurst}) {
        if (!is_forced(request_, "spill-buffers")) base.spill_buffers = buffers;
        // First blocks run beside the host's updates, and then spilling is slow.
        for (const Index first : {Index{0}, layers_ / 4, layers_ / 2}) {
          double before = kNever;
          for (Index eighth = 1; eighth <= 8; ++eighth) {
            const Index spilled = (layers_ - first) * eighth / 8;
            if (spilled == 0) continue;
            const Choices attempt = spend(base, {.boundaries = least,
                                                 .whole_blocks = whole_blocks,
                                                 .spilled = spilled,
                                                 .spill_first = first});
            const double time = attempt.kept_on_host.empty() ? kNever : consider(attempt);
            // More of it will be no faster: the link, or the host's memory, is full.
            if (time >= before) break;
            before = time;
          }
        }
      }
    return choices;
  }

  [[nodiscard]] bool spills_kept(const Choices& lean) const {
    return lean.segment == 1 && !is_forced(request_, "kept-on-host") &&
           !is_forced(request_, "keep");
  }

  /// Numbers of first units whose states may live on the device, the fewest first.
  [[nodiscard]] std::vector<Index> state_candidates(const Choices& lean) const {
    if (lean.waves > 1 || is_forced(request_, "device-states") || is_forced(request_, "embedding"))
      return {};
    const Index units = model_.unit_count();
    std::vector<Index> candidates = {1, 2, 3};
    for (const Index eighths : kStateEighths) candidates.push_back(units * eighths / 8);
    std::erase_if(candidates, [&](Index n) { return n < 1 || n > units; });
    std::ranges::sort(candidates);
    candidates.erase(std::ranges::unique(candidates).begin(), candidates.end());
    return candidates;
  }

  /// The predicted step if the host is slower than was measured, but no slower than it may be.
  [[nodiscard]] double seconds(const Choices& choices) const {
    Rates rates = *request_.rates;
    rates.update *= kCaution;
    rates.update_bf16_moments *= kCaution;
    return predict_seconds(make_plan(model_, choices), rates);
  }

  /// A way of spending memory.
  struct Way {
    Index boundaries = 0;        ///< at most so many on the device, as far as they fit
    bool weights_first = false;  ///< before intermediates
    bool whole_blocks = false;   ///< of intermediates, before attention's alone
    Index spilled = 0;           ///< blocks that keep all on the host, as far as that has room
    Index spill_first = 0;       ///< the first that may be among them
  };

  [[nodiscard]] Choices spend(Choices choices, const Way& way) const {
    grow(choices, "device-boundaries", choices.device_boundaries, way.boundaries,
         [](Choices& c, Index n) { c.device_boundaries = n; });
    if (way.weights_first) spend_on_weights(choices);
    spend_on_intermediates(choices, way);
    if (!way.weights_first) spend_on_weights(choices);
    return choices;
  }

  /// Levels of the last n blocks: backward wants them first.
  void keep_last(Choices& choices, Index end, Keep level) const {
    grow(choices, "keep", 0, end, [&](Choices& c, Index n) { keep(c, end - n, end, level); });
  }

  void keep(Choices& choices, Index begin, Index end, Keep level) const {
    if (begin >= end) return;
    if (choices.keep.empty())
      choices.keep.assign(static_cast<std::size_t>(layers_), Keep::boundary);
    std::fill(choices.keep.begin() + begin, choices.keep.begin() + end, level);
  }

  void spend_on_intermediates(Choices& choices, const Way& way) const {
    if (choices.segment > 1 || is_forced(request_, "keep")) return;
    const bool forced = is_forced(request_, "kept-on-host");
    const Index spilled = forced ? std::ranges::count(choices.kept_on_host, true) : way.spilled;
    if (spilled == 0 && !way.whole_blocks) {
      keep_last(choices, layers_, Keep::attention);
      keep_last(choices, layers_, Keep::all);
      return;
    }
    Choices spilling = choices;
    if (!forced) spilling.kept_on_host = spread_evenly(spilled, layers_, way.spill_first);
    std::vector<Index> others;  // the last first
    for (Index b = layers_ - 1; b >= 0; --b)
      if (spilling.kept_on_host[static_cast<std::size_t>(b)])
        keep(spilling, b, b + 1, Keep::all);
      else
        others.push_back(b);
    if (spilled > 0 && !fits(spilling)) return;
    choices = spilling;
    const auto grow_others = [&](Keep level) {
      Index kept = 0;
      grow(choices, "keep", 0, static_cast<Index>(others.size()), [&](Choices& c, Index n) {
        for (Index i = 0; i < n; ++i) {
          const Index block = others[static_cast<std::size_t>(i)];
          keep(c, block, block + 1, level);
        }
        kept = n;
      });
      others.erase(others.begin(), others.begin() + kept);
    };
    grow_others(Keep::all);
    grow_others(Keep::attention);
  }

  /// Whether memory saves more recompute when a block keeps all than when it keeps its attention
  /// alone: long sequences have most of their work there.
  [[nodiscard]] bool whole_blocks_first(const Choices& choices) const {
    if (!request_.rates) return false;
    struct Level {
      double seconds = 0;
      Index bytes = 0;
    };
    const auto level = [&](Keep keep) {
      Choices attempt = choices;
      attempt.keep.assign(static_cast<std::size_t>(layers_), keep);
      const Costs costs(model_, attempt);
      const Instruction recompute{.op = OpCode::recompute, .cost = costs.recompute(0, false)};
      return Level{compute_seconds(recompute, *request_.rates).total(), costs.kept_bytes(0)};
    };
    const Level nothing = level(Keep::boundary);
    const auto saved_a_byte = [&](const Level& l) {
      return (nothing.seconds - l.seconds) / static_cast<double>(l.bytes);
    };
    return saved_a_byte(level(Keep::all)) > saved_a_byte(level(Keep::attention));
  }

  void spend_on_weights(Choices& choices) const {
    if (!is_forced(request_, "slots")) {
      Choices attempt = choices;
      ++attempt.slots;
      if (attempt.slots <= layers_ && fits(attempt)) choices = attempt;
    }
    grow(choices, "resident", choices.resident,
         std::max<Index>(choices.resident, layers_ - choices.slots),
         [](Choices& c, Index n) { c.resident = n; });
  }

  /// Of the choices that the device's budget allows those that need the least host memory; where it
  /// allows none, those that need the least of both.
  [[nodiscard]] PlanBytes smallest_on_host() const {
    std::optional<PlanBytes> best;
    for (const Index batch : micro_batch_candidates())
      for (const Index waves : wave_candidates(request_.sequences / batch)) {
        Choices choices = leanest(batch, waves);
        if (choices.waves > choices.micro_batches) continue;
        relieve_host(choices);
        const PlanBytes bytes = needs(choices);
        const auto rank = [&](const PlanBytes& b) {
          const bool too_large = b.device > budget_;
          return std::pair(too_large, b.host() + (too_large ? b.device : 0));
        };
        if (!best || rank(bytes) < rank(*best)) best = bytes;
      }
    return best.value_or(PlanBytes());
  }

  [[noreturn]] void refuse() const {
    Choices smallest = leanest(1, 1);
    if (!is_forced(request_, "waves")) smallest.waves = smallest.micro_batches;
    validate(smallest, model_);
    const PlanBytes bytes = needs(smallest);
    const bool generates = request_.purpose == Purpose::generate;
    // The CPU device's budget is what the store leaves: where that does not fit, it is the cause.
    const bool store_fits = request_.host_memory == 0 || bytes.store <= request_.host_memory;
    if (bytes.device > budget_ && store_fits) {
      const Index reserve = request_.device_reserve;
      throw UserError(fmt::format(
          "the device memory budget of {} is too small for this model and sequence length; the "
          "smallest that works is {}{}. Raise --device-memory, shorten {}",
          format_bytes(request_.device_memory), ceil_to_mebibytes(bytes.device + reserve),
          reserve > 0
              ? fmt::format(" ({} for the plan, {} in reserve for the driver and libraries)",
                            format_bytes(bytes.device), format_bytes(reserve))
              : "",
          generates ? "--context" : "--seq-len, or loosen what is forced"));
    }
    const PlanBytes least = smallest_on_host();
    throw HostMemoryRefusal(
        fmt::format("the model needs {} of host memory ({} of {}, {} of staging and spill), but {} "
                    "are available",
                    format_bytes(least.host()), format_bytes(least.store),
                    generates ? "weights" : "weights, gradients and optimizer states",
                    format_bytes(least.pinned), format_bytes(request_.host_memory)),
        least);
  }

  const Model& model_;
  const PlanRequest& request_;
  Index layers_;
  Index budget_;
};

}  // namespace

Choices choose(const Model& model, const PlanRequest& request) {
  if (request.sequence < 1) throw UserError("a sequence needs at least 1 token");
  if (request.sequences < 1) throw UserError("a step needs at least 1 sequence");
  if (request.sequences > kMostSequences)
    throw UserError(
        fmt::format("a step of {} sequences is more than a plan lists ({}); take fewer tokens a "
                    "step, or longer "
                    "sequences",
                    request.sequences, kMostSequences));
  return Chooser(model, request).run();
}

}  // namespace megatrain
