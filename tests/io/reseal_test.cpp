#include "io/checkpoint/reseal.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "io/checkpoint/checkpoint_files.h"
#include "io/checkpoint/shard_writer.h"
#include "io/checkpoint/state_load.h"
#include "io/checkpoint/training_record.h"
#include "io/checkpoint/verify.h"
#include "tests/io/checkpoint_rig.h"
#include "tests/io/io_test_support.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNorm = "/params/model.norm.weight";

class Reseal : public testing::Test {
 protected:
  void SetUp() override {
    rig_.fill(*store_, 21);
    path_ = rig_.save(*store_, training_checkpoint(config_, folder_ / "c", 9));
  }

  void verify() {
    const Checkpoint checkpoint(path_);
    check_contents(checkpoint);
    verify_values(checkpoint, rig_.blocks, rig_.pool);
  }
  /// "FILE TENSOR" of what has changed.
  std::vector<std::string> resealed() {
    std::vector<std::string> items;
    for (const ResealedItem& item : reseal(path_, rig_.pool))
      items.push_back(item.file + " " + item.tensor);
    return items;
  }
  /// The shard that holds `tensor`.
  std::string shard_of(const std::string& tensor) {
    for (const ManifestShard& shard : read_manifest(path_, false).shards)
      for (const ManifestDataset& dataset : shard.datasets)
        if (dataset.path == tensor) return shard.name;
    throw Error("no such tensor");
  }
  void poke(const std::string& tensor, Index at, float value) {
    const fs::path path = path_ / shard_of(tensor);
    const Index offset = Hdf5File(path).find(tensor)->offset;
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset + at * 4);
    file << bytes_of_value(value);
  }
  /// Writes a shard anew, as a tool would that copies it, with `edit` of its datasets.
  void rewrite(const std::string& shard,
               const std::function<void(std::vector<Hdf5DatasetSpec>&)>& edit) {
    const fs::path path = path_ / shard;
    const fs::path copy = folder_ / "copy.h5";
    {
      const Hdf5File file(path);
      std::vector<Hdf5DatasetSpec> specs;
      for (const Hdf5Dataset& dataset : file.datasets())
        specs.push_back({dataset.path, dataset.type, dataset.shape, {}});
      edit(specs);
      const Hdf5Layout layout = create_hdf5(copy, specs, {});
      std::fstream out(copy, std::ios::binary | std::ios::in | std::ios::out);
      for (std::size_t i = 0; i < specs.size(); ++i) {
        const Hdf5Dataset* dataset = file.find(specs[i].path);
        if (dataset == nullptr) continue;
        std::string bytes(static_cast<std::size_t>(dataset->bytes), '\0');
        file.read(*dataset, 0, std::as_writable_bytes(std::span(bytes)));
        out.seekp(layout.offsets[i]);
        out << bytes;
      }
    }
    fs::rename(copy, path);
  }

  ModelConfig config_ = checkpoint_config("llama", false);
  TemporaryFolder folder_;
  CheckpointRig rig_;
  std::unique_ptr<HostStore> store_ = rig_.make_store(config_);
  fs::path path_;
};

TEST_F(Reseal, AnEditIsDamageUntilItIsSealed) {
  poke(kNorm, 5, 123.5F);
  expect_user_error([&] { verify(); }, {shard_of(kNorm), kNorm, "checksum"});
  EXPECT_EQ(resealed(), (std::vector<std::string>{shard_of(kNorm) + " " + kNorm}));
  verify();
  const auto loaded = rig_.make_store(config_);
  load_state(Checkpoint(path_), *loaded, LoadParts::all, rig_.pool);
  const Index head = loaded->model().head_unit();
  const ParamDesc& norm = *loaded->model().unit(head).find(ParamRole::final_norm);
  float value = 0;
  loaded->read_master(head, norm, 5, {&value, 1});
  EXPECT_EQ(value, 123.5F);
  EXPECT_NE(slabs(*loaded), slabs(*store_));
  store_->write_master(head, norm, 5, {&value, 1});
  EXPECT_EQ(slabs(*loaded), slabs(*store_)) << "nothing else has changed";
  EXPECT_TRUE(resealed().empty());
}

TEST_F(Reseal, AnUntouchedCheckpointStaysTheSame) {
  const std::string manifest = get_file(path_ / "manifest.json");
  EXPECT_TRUE(resealed().empty());
  EXPECT_EQ(get_file(path_ / "manifest.json"), manifest);
  verify();
}

TEST_F(Reseal, ShardsThatWereWrittenAnewAreTaken) {
  const std::string shard = shard_of(kNorm);
  rewrite(shard, [](auto& specs) { std::ranges::reverse(specs); });
  EXPECT_THROW(verify(), DamagedCheckpoint);
  EXPECT_EQ(resealed(), (std::vector<std::string>{shard + " "}));
  verify();
  const auto loaded = rig_.make_store(config_);
  load_state(Checkpoint(path_), *loaded, LoadParts::all, rig_.pool);
  EXPECT_EQ(slabs(*loaded), slabs(*store_));
}

TEST_F(Reseal, SmallFilesAreTakenToo) {
  std::string config = get_file(path_ / "config.json");
  config.insert(config.find('{') + 1, R"("_name_or_path": "mine", )");
  put_file(path_ / "config.json", config);
  EXPECT_THROW(verify(), DamagedCheckpoint);
  EXPECT_EQ(resealed(), std::vector<std::string>{"config.json "});
  verify();
}

/// What the writer said of a moment, and what is stored, shall not be two things.
TEST_F(Reseal, AStateFormatThatContradictsTheTypeIsRefusedAndIsDamageWhereItIsSealed) {
  constexpr const char* kMoment = "/optim/exp_avg/model.norm.weight";
  const std::string shard = shard_of(kMoment);
  const std::string manifest = get_file(path_ / "manifest.json");
  const auto say = [&](const Hdf5Attribute& attribute) {
    rewrite(shard, [&](auto& specs) {
      std::ranges::find(specs, kMoment, &Hdf5DatasetSpec::path)->attributes = {attribute};
    });
  };
  for (const auto& [attribute, said] : std::initializer_list<std::pair<Hdf5Attribute, const char*>>{
           {{"state_format", "bf16"}, "'bf16'"},
           {{"state_format", "fp8"}, "'fp8'"},
           {{"state_format", Index{32}}, "a number"}}) {
    say(attribute);
    expect_user_error([&] { resealed(); }, {shard, kMoment, "F32", "state_format", said});
    EXPECT_EQ(get_file(path_ / "manifest.json"), manifest);
    // As a writer would seal it that takes one type for the other.
    Manifest sealed = read_manifest(path_);
    const auto entry = std::ranges::find(sealed.shards, shard, &ManifestShard::name);
    const Hdf5File file(path_ / shard);
    std::vector<const Hdf5Dataset*> datasets;
    for (const ManifestDataset& dataset : entry->datasets)
      datasets.push_back(file.find(dataset.path));
    entry->bytes = file.bytes();
    entry->metadata = metadata_checksum(InputFile(path_ / shard), datasets);
    write_manifest(path_, sealed);
    EXPECT_THROW(verify(), DamagedCheckpoint);
    expect_user_error([&] { verify(); }, {shard, kMoment, "F32", "state_format", said});
    write_manifest(path_, parse_manifest(manifest, "manifest"));
  }
  say({"state_format", "fp32"});
  resealed();
  verify();
}

TEST_F(Reseal, WhatNoLongerFitsTheModelIsRefusedAndNothingIsWritten) {
  const std::string shard = shard_of(kNorm);
  const std::string whole = get_file(path_ / shard);
  const std::string manifest = get_file(path_ / "manifest.json");
  const auto refuse = [&](const std::function<void(std::vector<Hdf5DatasetSpec>&)>& edit,
                          std::initializer_list<std::string_view> says) {
    rewrite(shard, edit);
    expect_user_error([&] { resealed(); }, says);
    EXPECT_EQ(get_file(path_ / "manifest.json"), manifest);
    put_file(path_ / shard, whole);
    verify();
  };
  const auto norm = [](std::vector<Hdf5DatasetSpec>& specs) -> Hdf5DatasetSpec& {
    return *std::ranges::find(specs, kNorm, &Hdf5DatasetSpec::path);
  };
  refuse([&](auto& specs) { norm(specs).shape = {12, 2}; }, {kNorm, "[12, 2]", "[24]"});
  refuse([&](auto& specs) { norm(specs).type = FileType::i32; }, {kNorm, "I32", "F32"});
  refuse([&](auto& specs) { norm(specs).path = "/params/model.norm.weigth"; }, {kNorm, "missing"});
  refuse([&](auto& specs) { specs.push_back({"/params/more", FileType::f32, {1}}); },
         {"/params/more", "not there"});
  std::string config = get_file(path_ / "config.json");
  const std::string before = config;
  config.replace(config.find("\"num_hidden_layers\": 3"), 22, "\"num_hidden_layers\": 4");
  put_file(path_ / "config.json", config);
  expect_user_error([&] { resealed(); }, {"layers.3.", "missing"});
  put_file(path_ / "config.json", before);
  fs::remove(path_ / "training.json");
  expect_user_error([&] { resealed(); }, {"training.json"});
}

/// One moment of another type than the rest.
TEST_F(Reseal, MomentsOfTwoTypesAreRefused) {
  const std::string moment = "/optim/exp_avg_sq/model.norm.weight";
  rewrite(shard_of(moment), [&](auto& specs) {
    std::ranges::find(specs, moment, &Hdf5DatasetSpec::path)->type = FileType::bf16;
  });
  expect_user_error([&] { resealed(); }, {moment, "BF16", "all F32 or all BF16"});
}

TEST_F(Reseal, AnUnfinishedCheckpointStaysUnfinished) {
  fs::remove(path_ / "COMPLETE");
  expect_user_error([&] { resealed(); }, {"COMPLETE"});
}

TEST_F(Reseal, AnInterruptedSealIsMended) {
  poke(kNorm, 0, 1.0F);
  const std::string marker = get_file(path_ / "COMPLETE");
  EXPECT_EQ(resealed().size(), 1U);
  put_file(path_ / "COMPLETE", marker);  // as if it had ended before the last write
  EXPECT_THROW(verify(), DamagedCheckpoint);
  EXPECT_TRUE(resealed().empty());
  verify();
}

TEST_F(Reseal, WithoutItsConfigurationACheckpointIsNotReadableOnItsOwn) {
  SaveOptions bare;
  bare.folder = folder_ / "bare";
  rig_.save(*store_, bare);
  expect_user_error([&] { check_contents(Checkpoint(folder_ / "bare")); }, {"config.json"});
  // A training state without moments is none.
  bare.files = preset_side_files(config_, false);
  bare.files.push_back({"training.json", "{}"});
  rig_.save(*store_, bare);
  expect_user_error([&] { check_contents(Checkpoint(folder_ / "bare")); }, {"training.json"});
  bare.files.back().content =
      training_checkpoint(config_, bare.folder, bare.step).files.back().content;
  rig_.save(*store_, bare);
  EXPECT_TRUE(check_contents(Checkpoint(folder_ / "bare")).training);
}

/// What no step can have made would make weights of its own kind: it is refused when it is loaded.
TEST_F(Reseal, MomentsThatNoStepCanHaveMadeAreNotLoaded) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::string first = "/optim/exp_avg/model.norm.weight";
  const std::string second = "/optim/exp_avg_sq/model.norm.weight";
  for (const auto& [tensor, value] : {std::pair(first, std::nanf("")), std::pair(first, -kInfinity),
                                      std::pair(second, std::nanf("")),
                                      std::pair(second, kInfinity), std::pair(second, -1e-3F)}) {
    poke(tensor, 3, value);
    resealed();
    const auto loaded = rig_.make_store(config_);
    expect_user_error([&] { load_state(Checkpoint(path_), *loaded, LoadParts::all, rig_.pool); },
                      {shard_of(tensor), "element 3 of '" + tensor + "'", "finite"});
    poke(tensor, 3, 0);
  }
  poke(first, 3, -1e-3F);
  resealed();
  const auto loaded = rig_.make_store(config_);
  load_state(Checkpoint(path_), *loaded, LoadParts::all, rig_.pool);
}

TEST_F(Reseal, RefusesARecordThatContradictsTheMoments) {
  TrainingRecord record =
      parse_training_record(get_file(path_ / kTrainingName), std::string(kTrainingName));
  for (const auto& [value, whole] : {std::pair("fp32", true), std::pair("bf16", false)}) {
    record.options = {{std::string(kMomentsOption), value}, {"lr", "0.5"}};
    put_file(path_ / kTrainingName, to_json(record));
    if (whole) {
      EXPECT_EQ(resealed(), std::vector<std::string>{"training.json "});
      verify();
    } else {
      expect_user_error([&] { resealed(); }, {"training.json", "'bf16'", "fp32"});
    }
  }
  record.options = {{std::string(kMastersOption), "fp16"}};
  put_file(path_ / kTrainingName, to_json(record));
  expect_user_error([&] { resealed(); }, {"training.json", "masters", "'fp16'"});
}

}  // namespace
}  // namespace megatrain::io
