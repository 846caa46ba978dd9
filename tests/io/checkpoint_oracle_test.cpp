// Checkpoints as h5py sees them.
#include <sys/wait.h>

#include <cstdlib>

#include "io/checkpoint/convert.h"
#include "io/checkpoint/reseal.h"
#include "io/checkpoint/state_load.h"
#include "io/checkpoint/verify.h"
#include "io/safetensors_writer.h"
#include "tests/io/checkpoint_rig.h"
#include "tests/io/io_test_support.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;

class CheckpointOracle : public testing::Test {
 protected:
  /// @returns false when there is no h5py
  bool ask(const std::string& arguments) {
    const fs::path log = folder_ / "log";
    const std::string command =
        "python3 '" MEGATRAIN_CHECKPOINT_ORACLE "' " + arguments + " > '" + log.string() + "' 2>&1";
    const int status = std::system(command.c_str());
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127))
      return false;
    EXPECT_EQ(status, 0) << get_file(log);
    return true;
  }
  /// The moments of a store as a safetensors file.
  fs::path write_moments(const HostStore& store) {
    std::vector<TensorSpec> specs;
    std::vector<StateTensor> tensors;
    for (const StateShard& shard :
         state_shards(store.model(), Index{1} << 40, {.moments = store.moment_type()}))
      for (const StateTensor& tensor : shard.tensors)
        if (tensor.part != StatePart::master) {
          specs.push_back({tensor.path(), file_type(tensor.type), tensor.param->shape});
          tensors.push_back(tensor);
        }
    SafetensorsWriter writer(folder_ / "moments", specs);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      std::vector<std::byte> values(static_cast<std::size_t>(tensors[i].bytes()));
      read_state(store, tensors[i], 0, values);
      writer.write(i, 0, values);
    }
    writer.finish();
    return folder_ / "moments";
  }
  static std::string quoted(const fs::path& path) {
    std::string text = "'";
    text += path.string();
    text += "' ";
    return text;
  }

  TemporaryFolder folder_;
  CheckpointRig rig_;
};

/// With both formats of the moments.
class TrainingOracle : public CheckpointOracle, public testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Moments, TrainingOracle, testing::Values(DType::f32, DType::bf16),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(TrainingOracle, ReadsEveryDatasetAndItsEditsLoad) {
  rig_.moments = GetParam();
  const ModelConfig config = checkpoint_config("qwen2", true);
  const auto store = rig_.make_store(config);
  rig_.fill(*store, 31);
  const SaveOptions save = training_checkpoint(config, folder_ / "c", 0, GetParam());
  rig_.save(*store, save);
  export_model(*store, preset_side_files(config, false),
               {.folder = folder_ / "hf", .type = DType::f32}, rig_.pool);
  if (!ask("read " + quoted(save.folder) + quoted(folder_ / "hf" / "model.safetensors") +
           quoted(write_moments(*store))))
    GTEST_SKIP() << "python3 with h5py is not there";

  const auto verify = [&] {
    const Checkpoint checkpoint(save.folder);
    verify_values(checkpoint, rig_.blocks, rig_.pool);
  };
  verify();  // reading has changed nothing
  ask("edit " + quoted(save.folder));
  EXPECT_THROW(verify(), DamagedCheckpoint);
  std::vector<std::string> changed;
  for (const ResealedItem& item : reseal(save.folder, rig_.pool))
    if (!item.tensor.empty()) changed.push_back(item.tensor);
  EXPECT_EQ(changed, (std::vector<std::string>{"/params/model.embed_tokens.weight",
                                               "/params/model.norm.weight"}));
  verify();
  const auto loaded = rig_.make_store(config);
  load_state(Checkpoint(save.folder), *loaded, LoadParts::all, rig_.pool);
  const auto edit = [&](Index unit, ParamRole role, const auto& act) {
    const ParamDesc& param = *store->model().unit(unit).find(role);
    std::vector<float> values(static_cast<std::size_t>(param.elements()));
    store->read_master(unit, param, 0, values);
    act(values);
    store->write_master(unit, param, 0, values);
  };
  edit(store->model().head_unit(), ParamRole::final_norm, [](auto& values) { values[3] = 42; });
  edit(0, ParamRole::token_table, [](auto& values) {
    for (float& value : values) value *= 2;
  });
  EXPECT_EQ(slabs(*loaded), slabs(*store));
}

TEST_F(CheckpointOracle, ReadsBf16InBothForms) {
  const ModelConfig config = checkpoint_config("llama", false);
  const auto store = rig_.make_store(config);
  rig_.fill(*store, 32);
  export_model(*store, preset_side_files(config, false),
               {.folder = folder_ / "hf", .type = DType::bf16}, rig_.pool);
  for (const Hdf5Bf16 form : {Hdf5Bf16::floating, Hdf5Bf16::uint16}) {
    folder_to_checkpoint({.from = folder_ / "hf",
                          .to = folder_ / "c",
                          .type = DType::bf16,
                          .shard_bytes = 30'000,
                          .replace = true,
                          .threads = 2},
                         form);
    if (!ask("read " + quoted(folder_ / "c") + quoted(folder_ / "hf" / "model.safetensors")))
      GTEST_SKIP() << "python3 with h5py is not there";
  }
}

}  // namespace
}  // namespace megatrain::io
