#include "core/engine/step_groups.h"

#include "core/engine/solo_communicator.h"

namespace megatrain {

StepGroups StepGroups::alone() {
  return {.gather = make_solo_communicator("gather"),
          .scatter = make_solo_communicator("scatter"),
          .replicas = make_solo_communicator("replicas")};
}

void StepGroups::sum(std::span<double> values) {
  scatter->sum(values);
  replicas->sum(values);
}

void StepGroups::sum_slices(std::span<double> values) {
  scatter->sum(values);
  parts->sum(values);
}

void StepGroups::check() {
  for (Communicator* group : {gather.get(), scatter.get(), replicas.get()}) group->check();
  parts->check();
}

void StepGroups::abort(std::string_view reason) noexcept {
  parts->abort(reason);
  for (Communicator* group : {gather.get(), scatter.get(), replicas.get()}) group->abort(reason);
}

}  // namespace megatrain
