#include "core/plan/forced.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace megatrain {

namespace {

Index integer(std::string_view name, std::string_view value) {
  Index number = 0;
  const auto [rest, status] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (status != std::errc{} || rest != value.data() + value.size())
    throw UserError(fmt::format("{}={}: not a whole number", name, value));
  return number;
}

template <class T>
T one_of(std::string_view name, std::string_view value,
         std::initializer_list<std::pair<std::string_view, T>> known) {
  std::string names;
  for (const auto& [spelling, result] : known) {
    if (spelling == value) return result;
    names += (names.empty() ? "" : ", ") + std::string(spelling);
  }
  throw UserError(fmt::format("{}={}: must be one of {}", name, value, names));
}

Keep keep_level(std::string_view name, std::string_view value) {
  return one_of<Keep>(
      name, value,
      {{"boundary", Keep::boundary}, {"attention", Keep::attention}, {"all", Keep::all}});
}

struct Setter {
  ForcedChoice choice;
  void (*set)(Choices&, const Model&, std::string_view name, std::string_view value);
};

/// The one list of what can be forced.
const std::vector<Setter>& setters() {
  static const std::vector<Setter> kSetters = {
      {{"micro-batch", "N", "sequences of a micro-batch"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         const Index sequences = c.step_sequences();
         const Index batch = integer(n, v);
         if (batch < 1 || sequences % batch != 0)
           throw UserError(fmt::format(
               "micro-batch={}: a step of {} sequences cannot be cut into micro-batches of {}", v,
               sequences, batch));
         c.micro_batch.batch = batch;
         c.micro_batches = sequences / batch;
       }},
      {{"waves", "N", "passes over the model that a step is cut into"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         c.waves = integer(n, v);
       }},
      {{"slots", "N", "device buffers of the weight ring"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         c.slots = integer(n, v);
       }},
      {{"segment", "N", "blocks between saved boundaries (K)"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         c.segment = integer(n, v);
       }},
      {{"resident", "N", "first blocks whose weights stay on the device"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         c.resident = integer(n, v);
       }},
      {{"device-states", "N",
        "first units, the embedding among them, whose states live on the device"},
       [](Choices& c, const Model& model, std::string_view n, std::string_view v) {
         hold_states(c, model, integer(n, v));
       }},
      {{"device-boundaries", "N", "saved boundaries kept on the device; the rest is spilled"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         c.device_boundaries = integer(n, v);
       }},
      {{"spill-buffers", "N", "boundaries in flight to and from pinned host memory"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         c.spill_buffers = integer(n, v);
       }},
      {{"staging", "N", "gradient buffers between reduction and download"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         c.staging = integer(n, v);
       }},
      {{"head-chunk", "N", "tokens whose logits exist at once"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         c.compute.head_chunk = integer(n, v);
       }},
      {{"embedding", "table|rows", "fetch the whole table, or gather the rows that a wave needs"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         c.embedding = one_of<EmbeddingMode>(
             n, v, {{"table", EmbeddingMode::table}, {"rows", EmbeddingMode::rows}});
       }},
      {{"attention", "own|cudnn|cudnn-deterministic", "kernels of attention"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         using ops::AttentionBackend;
         using enum AttentionBackend;
         c.compute.attention =
             one_of<AttentionBackend>(n, v,
                                      {{ops::name(own), own},
                                       {ops::name(cudnn), cudnn},
                                       {ops::name(cudnn_deterministic), cudnn_deterministic}});
       }},
      {{"kept-on-host", "N|N@FIRST",
        "blocks (from FIRST on) that spill to the host what they keep for backward"},
       [](Choices& c, const Model& model, std::string_view n, std::string_view v) {
         const Index layers = model.config().layers;
         const auto at = v.find('@');
         const Index count = integer(n, v.substr(0, at));
         const Index first = at == std::string_view::npos ? 0 : integer(n, v.substr(at + 1));
         if (count < 0 || first < 0 || first > layers || count > layers - first)
           throw UserError(fmt::format("{}={}: the model has {} blocks", n, v, layers));
         c.kept_on_host = spread_evenly(count, layers, first);
       }},
      {{"graphs", "on|off", "launch each visit of a block as one graph"},
       [](Choices& c, const Model&, std::string_view n, std::string_view v) {
         c.graphs = one_of<bool>(n, v, {{"on", true}, {"off", false}});
       }},
      {{"keep", "boundary|attention|all", "what every block keeps for its backward pass"},
       [](Choices& c, const Model& model, std::string_view n, std::string_view v) {
         c.keep.assign(static_cast<std::size_t>(model.config().layers), keep_level(n, v));
       }},
  };
  return kSetters;
}

}  // namespace

const std::vector<ForcedChoice>& forced_choices() {
  static const std::vector<ForcedChoice> kChoices = [] {
    std::vector<ForcedChoice> choices;
    for (const Setter& setter : setters()) choices.push_back(setter.choice);
    return choices;
  }();
  return kChoices;
}

void force(Choices& choices, const Model& model, std::string_view name, std::string_view value) {
  std::string names;
  for (const Setter& setter : setters()) {
    if (setter.choice.name == name) return setter.set(choices, model, name, value);
    names += (names.empty() ? "" : ", ") + std::string(setter.choice.name);
  }
  throw UserError(fmt::format("'{}' is no choice of the planner; it knows {}", name, names));
}

bool is_forced(const PlanRequest& request, std::string_view name) {
  return std::ranges::any_of(request.forced, [&](const auto& f) { return f.first == name; });
}

}  // namespace megatrain
