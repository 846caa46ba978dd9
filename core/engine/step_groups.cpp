#include "core/engine/step_groups.h"

#include <array>

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

void StepGroups::sum_step(double& losses, double& squared_norm) {
  std::array<double, 2> both{losses, squared_norm};
  scatter->sum(both);
  losses = both[0];
  squared_norm = both[1];
  replicas->sum({&losses, 1});
  parts->sum({&squared_norm, 1});
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
