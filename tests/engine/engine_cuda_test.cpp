/// @file
/// The engine on a GPU: the same equality rule, and agreement with the CPU device.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/engine_rig.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

constexpr Index kSteps = 3;

RigOptions on_gpu() {
  RigOptions options;
  options.device = DeviceKind::cuda;
  options.update_threads = 2;
  return options;
}

class CudaEngine : public ::testing::TestWithParam<PlanCase> {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(CudaEngine, SameKeySameBits) {
  const PlanCase& c = GetParam();
  Choices plain = plan_grid().front().choices;
  plain.micro_batches = c.choices.micro_batches;
  if (c.config.tied_embeddings) plain.waves = c.choices.waves;
  plain.compute = c.choices.compute;
  plain.master = c.choices.master;
  plain.moments = c.choices.moments;
  RigOptions options = on_gpu();
  const Snapshot expected = Rig(c.config, plain, options).run(kSteps);
  options.poison = true;
  EXPECT_TRUE(Rig(c.config, c.choices, options).run(kSteps) == expected);
}

TEST_P(CudaEngine, AgreesWithTheCpu) {
  const PlanCase& c = GetParam();
  const Snapshot gpu = Rig(c.config, c.choices, on_gpu()).run(kSteps);
  const Snapshot cpu = Rig(c.config, c.choices).run(kSteps);
  const double bound = c.choices.compute.type == DType::f32 ? 1e-5 : 1e-2;
  for (std::size_t s = 0; s < gpu.losses.size(); ++s) {
    EXPECT_NEAR(gpu.losses[s] / cpu.losses[s], 1, bound);
    EXPECT_NEAR(gpu.norms[s] / cpu.norms[s], 1, 10 * bound);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, CudaEngine, ::testing::ValuesIn(training_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace megatrain::testing
