#include "io/checkpoint/convert.h"

#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "core/base/bfloat16.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/reseal.h"
#include "io/checkpoint/state_load.h"
#include "io/checkpoint/verify.h"
#include "io/safetensors_writer.h"
#include "io/tensors/comparison.h"
#include "io/weight_files.h"
#include "tests/io/checkpoint_rig.h"
#include "tests/io/io_test_support.h"
#include "tests/memory_map.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;

/// Every weight's type and bytes, by name.
using Weights = std::map<std::string, std::pair<FileType, std::string>>;

Weights weights_in(const fs::path& path) {
  Weights weights;
  for (const NamedTensor& tensor : weights_of(open_tensors(path))) {
    std::string bytes(static_cast<std::size_t>(tensor.bytes), '\0');
    tensor.read(0, std::as_writable_bytes(std::span(bytes)));
    weights[tensor.name] = {tensor.type, bytes};
  }
  return weights;
}

class Convert : public testing::Test {
 protected:
  /// A model folder with uneven values.
  fs::path write_folder(const ModelConfig& config, DType type, std::string_view name = "hf") {
    const auto store = rig_.make_store(config);
    rig_.fill(*store, 11);
    export_model(*store, preset_side_files(config, false),
                 {.folder = folder_ / name, .type = type, .shard_bytes = 30'000, .replace = true},
                 rig_.pool);
    return folder_ / name;
  }
  ConvertOptions options(const fs::path& from, std::string_view to, DType type = DType::f32) {
    return {.from = from,
            .to = folder_ / to,
            .type = type,
            .shard_bytes = 15'000,  // several shards
            .threads = 2};
  }
  void verify(const fs::path& folder) {
    const Checkpoint checkpoint(folder);
    check_contents(checkpoint);
    verify_values(checkpoint, rig_.blocks, rig_.pool);
  }

  TemporaryFolder folder_;
  CheckpointRig rig_;
};

TEST_F(Convert, ThereAndBackIsTheSameBitByBit) {
  struct Case {
    const char* model;
    bool tied;
    DType type;
    Hdf5Bf16 bf16 = Hdf5Bf16::floating;
  };
  for (const auto& [model, tied, type, bf16] :
       {Case{"qwen2", true, DType::f32}, Case{"llama", false, DType::bf16},
        Case{"gpt2", true, DType::bf16, Hdf5Bf16::uint16}}) {
    SCOPED_TRACE(model);
    const fs::path from = write_folder(checkpoint_config(model, tied), type);
    folder_to_checkpoint(options(from, "c", type), bf16);
    verify(folder_ / "c");
    EXPECT_GT(read_manifest(folder_ / "c").shards.size(), 1U);
    EXPECT_EQ(weights_in(folder_ / "c"), weights_in(from));
    checkpoint_to_folder(options(folder_ / "c", "back", type));
    EXPECT_EQ(weights_in(folder_ / "back"), weights_in(from));
    // The same model, by every file.
    EXPECT_EQ(HfFolder(folder_ / "back").config().model, HfFolder(from).config().model);
    EXPECT_EQ(HfFolder(folder_ / "back").side_files().size(), HfFolder(from).side_files().size());
    fs::remove_all(folder_ / "c");
    fs::remove_all(folder_ / "back");
  }
}

TEST_F(Convert, EveryBitPatternOfAnEqualTypeSurvives) {
  ModelConfig config = checkpoint_config("llama", false);
  config.vocabulary = 4000;  // 96 000 elements: more than all 65 536 patterns
  const fs::path from = write_folder(config, DType::bf16);
  const WeightFiles files(from);
  const WeightTensor& table = files.tensors().at("model.embed_tokens.weight");
  std::fstream file(table.file->path(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(table.tensor->begin);
  for (unsigned pattern = 0; pattern < 65'536; ++pattern) {
    const auto raw = static_cast<std::uint16_t>(pattern);
    file.write(reinterpret_cast<const char*>(&raw), 2);
  }
  file.close();
  folder_to_checkpoint(options(from, "c", DType::bf16), Hdf5Bf16::floating);
  checkpoint_to_folder(options(folder_ / "c", "back", DType::bf16));
  EXPECT_EQ(weights_in(folder_ / "back"), weights_in(from));
}

TEST_F(Convert, WidensExactlyAndRoundsToNearest) {
  const fs::path from = write_folder(checkpoint_config("llama", false), DType::f32);
  folder_to_checkpoint(options(from, "narrow", DType::bf16), Hdf5Bf16::floating);
  folder_to_checkpoint(options(from, "wide"), Hdf5Bf16::floating);
  checkpoint_to_folder(options(folder_ / "wide", "narrowed", DType::bf16));
  EXPECT_EQ(weights_in(folder_ / "narrow"), weights_in(folder_ / "narrowed"));
  checkpoint_to_folder(options(folder_ / "narrow", "widened"));
  const Weights exact = weights_in(from);
  const Weights widened = weights_in(folder_ / "widened");
  ASSERT_EQ(exact.size(), widened.size());
  for (const auto& [name, weight] : exact) {
    const auto& [type, bytes] = widened.at(name);
    ASSERT_EQ(type, FileType::f32);
    for (std::size_t at = 0; at < bytes.size(); at += 4) {
      float before = 0;
      float after = 0;
      std::memcpy(&before, weight.second.data() + at, 4);
      std::memcpy(&after, bytes.data() + at, 4);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(after),
                std::bit_cast<std::uint32_t>(to_float(to_bfloat16(before))))
          << name << " byte " << at;
    }
  }
  // What would become infinite is refused by name, and nothing is left behind.
  const WeightFiles files(from);
  const WeightTensor& norm = files.tensors().at("model.norm.weight");
  std::fstream file(norm.file->path(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(norm.tensor->begin);
  file << bytes_of_value(std::numeric_limits<float>::max());
  file.close();
  expect_user_error(
      [&] { folder_to_checkpoint(options(from, "over", DType::bf16), Hdf5Bf16::floating); },
      {"model.norm.weight", "infinite"});
  EXPECT_FALSE(fs::exists(folder_ / "over"));
  EXPECT_FALSE(fs::exists(folder_ / "over.megatrain.tmp"));
}

TEST_F(Convert, AConvertedCheckpointLoadsAsWeights) {
  const ModelConfig config = checkpoint_config("qwen3", true);
  const fs::path from = write_folder(config, DType::f32);
  folder_to_checkpoint(options(from, "c"), Hdf5Bf16::floating);
  const auto expected = rig_.make_store(config);
  load_weights(from, *expected, rig_.pool);
  const auto loaded = rig_.make_store(config);
  const Checkpoint checkpoint(folder_ / "c");
  load_state(checkpoint, *loaded, LoadParts::weights, rig_.pool);
  EXPECT_EQ(slabs(*loaded), slabs(*expected));
  expect_user_error([&] { load_state(checkpoint, *loaded, LoadParts::all, rig_.pool); },
                    {"exp_avg", "--resume"});
  EXPECT_EQ(checkpoint.manifest().step, 0);
  EXPECT_EQ(checkpoint.manifest().aliases.count("lm_head.weight"), 1U);
  EXPECT_EQ(check_contents(checkpoint).parts, LoadParts::weights);
}

TEST_F(Convert, ATrainingCheckpointBecomesTheFolderThatTrainingExports) {
  const ModelConfig config = checkpoint_config("llama", false);
  const auto store = rig_.make_store(config);
  rig_.fill(*store, 3);
  rig_.save(*store, training_checkpoint(config, folder_ / "c", 5));
  checkpoint_to_folder(options(folder_ / "c", "hf", DType::bf16));
  export_model(*store, preset_side_files(config, false),
               {.folder = folder_ / "exported", .type = DType::bf16, .shard_bytes = 15'000},
               rig_.pool);
  for (const auto& entry : fs::directory_iterator(folder_ / "exported")) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(get_file(folder_ / "hf" / name), get_file(entry.path())) << name;
  }
  EXPECT_FALSE(fs::exists(folder_ / "hf" / "training.json"));
  EXPECT_FALSE(fs::exists(folder_ / "hf" / "all.h5"));
}

TEST_F(Convert, ReplacesOnlyWhenToldAndOnlyByAWholeOne) {
  const fs::path from = write_folder(checkpoint_config("llama", false), DType::f32);
  ConvertOptions to = options(from, "c");
  folder_to_checkpoint(to, Hdf5Bf16::floating);
  const std::string manifest = get_file(folder_ / "c" / "manifest.json");
  expect_user_error([&] { folder_to_checkpoint(to, Hdf5Bf16::floating); }, {"exists"});
  to.replace = true;
  to.type = DType::bf16;
  // Damaged half-way: the old one stays.
  const WeightFiles files(from);
  const WeightTensor& norm = files.tensors().at("model.norm.weight");
  const std::string whole = get_file(norm.file->path());
  std::string damaged = whole;
  const float huge = std::numeric_limits<float>::max();
  std::memcpy(damaged.data() + norm.tensor->begin, &huge, 4);
  put_file(norm.file->path(), damaged);
  EXPECT_THROW(folder_to_checkpoint(to, Hdf5Bf16::floating), UserError);
  EXPECT_EQ(get_file(folder_ / "c" / "manifest.json"), manifest);
  put_file(norm.file->path(), whole);
  folder_to_checkpoint(to, Hdf5Bf16::floating);
  EXPECT_NE(get_file(folder_ / "c" / "manifest.json"), manifest);
  verify(folder_ / "c");
}

TEST_F(Convert, DamageIsNamedAndLeavesNothing) {
  const fs::path from = write_folder(checkpoint_config("llama", false), DType::f32);
  folder_to_checkpoint(options(from, "c"), Hdf5Bf16::floating);
  const Checkpoint checkpoint(folder_ / "c");
  const Checkpoint::Tensor& tensor = *checkpoint.find("/params/model.norm.weight");
  std::fstream file(tensor.file->path(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(tensor.dataset->offset + 3);
  file.put('\x55');
  file.close();
  expect_user_error([&] { checkpoint_to_folder(options(folder_ / "c", "back")); },
                    {"model.norm.weight", "checksum"});
  EXPECT_FALSE(fs::exists(folder_ / "back"));
  EXPECT_FALSE(fs::exists(folder_ / "back.megatrain.tmp"));
}

TEST_F(Convert, CopiesOfTiedWeightsMustAgree) {
  const ModelConfig config = checkpoint_config("qwen2", true);
  const fs::path from = write_folder(config, DType::f32);
  const WeightFiles files(from);
  std::string table;
  std::string name = "extra.safetensors";
  const NamedTensor weight = [&] {
    for (const NamedTensor& one : open_tensors(from).tensors)
      if (one.name == "model.embed_tokens.weight") return one;
    throw Error("no table");
  }();
  table.resize(static_cast<std::size_t>(weight.bytes));
  weight.read(0, std::as_writable_bytes(std::span(table)));
  const auto add_copy = [&](std::string content) {
    SafetensorsWriter writer(from / name, {{"lm_head.weight", FileType::f32, weight.shape}});
    writer.write(0, 0, std::as_bytes(std::span(content)));
    writer.finish();
  };
  std::string index = get_file(from / "model.safetensors.index.json");
  index.replace(index.find("\"model.embed"), 0, R"("lm_head.weight": ")" + name + "\",\n");
  put_file(from / "model.safetensors.index.json", index);
  add_copy(table);
  folder_to_checkpoint(options(from, "c"), Hdf5Bf16::floating);
  verify(folder_ / "c");
  table.back() = static_cast<char>(table.back() ^ 1);
  add_copy(table);
  expect_user_error([&] { folder_to_checkpoint(options(from, "d"), Hdf5Bf16::floating); },
                    {"lm_head.weight", "tie"});
}

TEST_F(Convert, TakesBlocksNotModels) {
  if (!kProcessIsOurs) GTEST_SKIP() << "a sanitizer's notes are larger than the model";
  ModelConfig config = checkpoint_config("llama", false);
  config.vocabulary = 1'500'000;  // two tables of 144 MB
  const fs::path from = folder_ / "hf";
  {
    const auto store = rig_.make_store(config);
    initialize(*store, 5, rig_.pool);
    export_model(*store, preset_side_files(config, false), {.folder = from, .type = DType::f32},
                 rig_.pool);
  }
  ConvertOptions there = options(from, "c");
  there.shard_bytes = Index{1} << 30;
  // Two threads with a block of 16 MiB each, and as much for what is read or written.
  constexpr Index kMost = Index{80} << 20;
  Index before = peak_bytes(true);
  folder_to_checkpoint(there, Hdf5Bf16::floating);
  EXPECT_LT(peak_bytes(false) - before, kMost);
  ConvertOptions back = options(folder_ / "c", "back");
  back.shard_bytes = Index{1} << 30;
  before = peak_bytes(true);
  checkpoint_to_folder(back);
  EXPECT_LT(peak_bytes(false) - before, kMost);
  // Each block went to its place.
  for (const char* copy : {"c", "back"})
    EXPECT_TRUE(compare_tensors(weights_of(open_tensors(from)),
                                weights_of(open_tensors(folder_ / copy)), true, rig_.pool)
                    .same())
        << copy;
}

}  // namespace
}  // namespace megatrain::io
