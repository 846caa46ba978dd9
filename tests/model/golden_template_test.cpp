/// The layer templates against transformers: logits, losses and the gradient of every tensor of
/// each case that make_goldens.py makes.

#include <fmt/format.h>

#include <filesystem>

#include "core/model/templates.h"
#include "io/hf_folder.h"
#include "io/safetensors.h"
#include "tests/model/template_rig.h"
#include "tests/ops/op_test.h"

namespace megatrain::modeltest {

namespace {

using optest::Values;

Values read(const io::SafetensorsFile& file, const std::string& name) {
  const io::TensorInfo* tensor = file.find(name);
  if (tensor == nullptr) throw LogicError(file.path().string() + " has no tensor " + name);
  std::vector<float> floats(static_cast<std::size_t>(tensor->elements()));
  file.read_floats(*tensor, 0, floats);
  return {floats.begin(), floats.end()};
}

/// The first step's tokens of a case.
struct Tokens {
  MicroBatchShape shape;
  reference::Batch batch;

  explicit Tokens(const io::SafetensorsFile& golden) {
    const io::TensorInfo* tensor = golden.find("tokens");  // [steps, batch, sequence + 1]
    shape = {.batch = tensor->shape.at(1), .sequence = tensor->shape.at(2) - 1};
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.batch * (shape.sequence + 1)));
    golden.read(*tensor, 0, std::as_writable_bytes(std::span(tokens)));
    batch.batch = shape.batch;
    batch.sequence = shape.sequence;
    for (Index b = 0; b < shape.batch; ++b) {
      const auto row = tokens.begin() + b * (shape.sequence + 1);
      batch.ids.insert(batch.ids.end(), row, row + shape.sequence);
      batch.targets.insert(batch.targets.end(), row + 1, row + 1 + shape.sequence);
    }
  }
};

class GoldenTemplateTest : public optest::OpTest {
 protected:
  void compare(const std::filesystem::path& folder) {
    const io::HfFolder model_folder(folder);
    const ModelConfig& config = model_folder.config().model;
    const io::SafetensorsFile model_file(folder / "model.safetensors");
    const io::SafetensorsFile golden(folder / "golden.safetensors");
    const Tokens tokens(golden);
    const Model model(config);
    reference::Tensors weights;
    for (const Unit& unit : model.units())
      for (const ParamDesc& param : unit.params) weights[param.name] = read(model_file, param.name);

    const bool exact = type() == DType::f32;
    TemplateRig rig(bench(), config, {.type = type(), .head_chunk = 16}, tokens.shape,
                    std::move(weights));
    EXPECT_LT(optest::relative_error(rig.logits(tokens.batch, 0, tokens.shape.tokens()),
                                     read(golden, "logits")),
              exact ? 1e-5 : 3e-2);
    const double scale = 1 / static_cast<double>(tokens.shape.tokens());
    const Outcome outcome = rig.train(std::span(&tokens.batch, 1), scale);
    double loss = 0;
    for (const double token_loss : outcome.losses) loss += token_loss * scale;
    EXPECT_LT(optest::relative_error(Values{loss}, read(golden, "loss")), exact ? 1e-5 : 1e-2);
    for (const auto& [name, gradient] : outcome.gradients) {
      const Values expected = read(golden, "grad." + name);
      if (exact) {
        EXPECT_LT(optest::relative_error(gradient, expected), 1e-5) << name;
      } else {
        EXPECT_GT(cosine(gradient, expected), 0.999) << name;
      }
    }
  }
};

}  // namespace

TEST_P(GoldenTemplateTest, every_case_matches_transformers) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MEGATRAIN_GOLDEN_DATA)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    compare(entry.path());
    ++cases;
  }
  EXPECT_EQ(cases, 27) << "make_goldens.py makes the missing ones";
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenTemplateTest, testing::ValuesIn(optest::op_cases()),
                         optest::op_case_name);

}  // namespace megatrain::modeltest
