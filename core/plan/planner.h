#pragma once
/// @file
/// Chooses: model, machine, budget and batch in, choices out.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/plan_memory.h"
#include "core/plan/simulator.h"
#include "core/plan/writers.h"

namespace megatrain {

/// What the user asks for and what the machine has.
struct PlanRequest {
  Purpose purpose = Purpose::train;
  Index sequence = 0;    ///< tokens a sequence
  Index sequences = 0;   ///< of a step, on each rank
  Slicing slicing = {};  ///< the shard group, see Choices
  Index replicas = 1;
  ComputeConfig compute;
  MasterFormat master = MasterFormat::fp32;
  DType moments = DType::f32;
  Index device_memory = 0;   ///< the whole budget, bytes
  Index device_reserve = 0;  ///< of it, what the plan cannot own: context, modules, libraries
  /// What the choices that change no bit are weighed by; absent: they follow a fixed order.
  std::optional<Rates> rates = {};
  bool device_graphs = false;  ///< the device launches graphs, see DeviceInfo
  bool page_tables = false;    ///< its memory has to hold those of the host's pinned memory
  Index host_memory = 0;       ///< for slabs and pinned buffers of this rank, bytes; 0: not known
  /// Choices that the user fixed, as "--force name=value" spells them (also micro-batch, slots,
  /// segment). Met or refused.
  std::vector<std::pair<std::string, std::string>> forced;
};

/// A name that can be forced, and what it takes.
struct ForcedChoice {
  std::string_view name;
  std::string_view values;  ///< "N", "table|rows"
  std::string_view help;    ///< what is chosen
};
const std::vector<ForcedChoice>& forced_choices();

/// Nothing fits the host's memory.
class HostMemoryRefusal : public UserError {
 public:
  HostMemoryRefusal(const std::string& message, const PlanBytes& smallest)
      : UserError(message), smallest_(smallest) {}
  /// Of the choices that need the least host memory.
  [[nodiscard]] const PlanBytes& smallest() const { return smallest_; }

 private:
  PlanBytes smallest_;
};

/// The fastest choices that fit the budget.
/// @throws UserError when nothing fits (it says the smallest budget that works; HostMemoryRefusal
///         where it is the host's), or when a forced choice cannot be met
Choices choose(const Model& model, const PlanRequest& request);

}  // namespace megatrain
