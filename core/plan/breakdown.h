#pragma once
/// @file
/// Where the time of a step went, as the compute stream saw it.

#include <array>
#include <string_view>

#include "core/plan/rates.h"
#include "core/plan/trace.h"

namespace megatrain {

/// What the compute stream did, or waited for, at a moment.
enum class StepPart : std::uint8_t {
  products,       ///< matrix products of forward, backward and head
  attention,      ///< of forward and backward
  small_kernels,  ///< everything else that computes: element-wise ops, reductions
  recompute,      ///< all that repeats forward
  transfer,       ///< idle until a fetch, offload, spill or gather of rows had ended
  communication,  ///< idle until other ranks had given or taken
  optimizer,      ///< idle until an update on the host had ended
  gaps,           ///< idle for no such reason: launches, the issuing thread's own work
};
inline constexpr std::size_t kStepParts = 8;
/// "products", "small kernels", ...
std::string_view name(StepPart part);

struct StepBreakdown {
  double seconds = 0;                      ///< from the trace's zero to the end of its last span
  std::array<double, kStepParts> parts{};  ///< seconds; they add up to `seconds`
  [[nodiscard]] double of(StepPart part) const { return parts[static_cast<std::size_t>(part)]; }
};

/// Splits one traced step of the plan. Idle time of the compute stream goes to what the instruction
/// that ends it waited for, link by link: a fetch that came late because its unit's update was late
/// is the optimizer's. What a single instruction computed is not traced: within forward, backward
/// and head, the measured time is shared out in proportion to what `rates` predict.
/// @param trace  of one body, a span an instruction in the plan's order, as the engine and the
///               simulator make it. @throws LogicError when it is not
StepBreakdown break_down(const Plan& plan, const Trace& trace, const Rates& rates);

}  // namespace megatrain
