#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "core/base/bfloat16.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_files.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/checkpoint/state_load.h"
#include "io/checkpoint/training_record.h"
#include "io/checkpoint/verify.h"
#include "tests/io/checkpoint_rig.h"
#include "tests/io/io_test_support.h"
#include "tests/memory_map.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  SaveOptions options(std::string_view name = "c") {
    SaveOptions o;
    o.folder = folder_ / name;
    o.step = 7;
    o.shard_bytes = 60'000;  // several shards
    o.files = {{"config.json", "{}\n"}, {"training.json", to_json(TrainingRecord{})}};
    return o;
  }

  void verify(const fs::path& folder) { verify_values(Checkpoint(folder), rig_.blocks, rig_.pool); }

  TemporaryFolder folder_;
  CheckpointRig rig_;
};

TEST_F(CheckpointTest, SavedLoadedAndSavedAgainIsTheSame) {
  for (const MasterFormat format : {MasterFormat::split, MasterFormat::fp32})
    for (const auto& [type, tied, moments] :
         {std::tuple("qwen2", true, DType::f32), std::tuple("llama", false, DType::f32),
          std::tuple("gpt2", true, DType::f32), std::tuple("gpt2", true, DType::bf16),
          std::tuple("llama", false, DType::bf16)}) {
      SCOPED_TRACE(std::string(type) + " " + std::string(name(moments)));
      rig_.moments = moments;
      const ModelConfig config = checkpoint_config(type, tied);
      const auto store = rig_.make_store(config, format);
      rig_.fill(*store, 1);
      const fs::path first = rig_.save(*store, options("first"));
      const auto loaded = rig_.make_store(config, format);
      load_state(Checkpoint(first), *loaded, LoadParts::all, rig_.pool);
      EXPECT_EQ(slabs(*loaded), slabs(*store));
      const auto files = files_of(first);
      EXPECT_EQ(files_of(rig_.save(*loaded, options("second"))), files);
      EXPECT_GE(files.size(), 7U);  // more than one shard

      // What is stored does not depend on how the store keeps its masters.
      const auto other = rig_.make_store(
          config, format == MasterFormat::split ? MasterFormat::fp32 : MasterFormat::split);
      load_state(Checkpoint(first), *other, LoadParts::all, rig_.pool);
      EXPECT_EQ(files_of(rig_.save(*other, options("third"))), files);
      for (const char* name : {"first", "second", "third"}) fs::remove_all(folder_ / name);
    }
}

TEST_F(CheckpointTest, MomentsAreStoredAsTheyAreKept) {
  const ModelConfig config = checkpoint_config("llama", false);
  Index bytes[2] = {};
  for (const DType moments : {DType::f32, DType::bf16}) {
    rig_.moments = moments;
    const auto store = rig_.make_store(config);
    rig_.fill(*store, 1);
    BackgroundSave save(*store, options(), rig_.blocks, 2);
    for (Index unit = 0; unit < store->model().unit_count(); ++unit) save.unit(unit);
    bytes[moments == DType::bf16 ? 1 : 0] = save.wait().bytes;
    const Checkpoint checkpoint(options().folder);
    verify(options().folder);
    for (const char* moment : {"/optim/exp_avg/lm_head.weight", "/optim/exp_avg_sq/lm_head.weight"})
      EXPECT_EQ(checkpoint.find(moment)->entry->type, file_type(moments));
    EXPECT_EQ(checkpoint.find("/params/lm_head.weight")->entry->type, FileType::f32);
    const auto& attributes = checkpoint.find("/optim/exp_avg/lm_head.weight")->dataset->attributes;
    const auto format = std::ranges::find(attributes, "state_format", &Hdf5Attribute::name);
    ASSERT_NE(format, attributes.end());
    EXPECT_EQ(std::get<std::string>(format->value), name(moments));
    EXPECT_EQ(moments_in(checkpoint.manifest()), moments);
    fs::remove_all(options().folder);
  }
  EXPECT_EQ(bytes[0] / 12, bytes[1] / 8);
}

/// Neither type is had from the other unasked; asked for, to bf16 is to nearest and back exact.
TEST_F(CheckpointTest, MomentsOfAnotherTypeAreRefusedOrConverted) {
  const ModelConfig config = checkpoint_config("qwen3", true);
  const auto wide = rig_.make_store(config);
  rig_.fill(*wide, 6);
  rig_.save(*wide, options("wide"));
  rig_.moments = DType::bf16;
  const auto narrow = rig_.make_store(config);
  const auto load = [&](std::string_view from, HostStore& store, OtherMoments other) {
    load_state(Checkpoint(folder_ / from), store, LoadParts::all, rig_.pool, {}, Peers::alone(),
               other);
  };
  const std::vector<std::byte> before = slabs(*narrow);
  expect_user_error(
      [&] { load("wide", *narrow, OtherMoments::refused); },
      {"moments are fp32", "keeps them in bf16", "--moments fp32", "--accept-change moments"});
  EXPECT_EQ(slabs(*narrow), before) << "refused before anything is read";
  load("wide", *narrow, OtherMoments::converted);
  for (Index unit = 0; unit < wide->model().unit_count(); ++unit) {
    const auto elements = static_cast<std::size_t>(wide->model().unit(unit).slab_elements);
    for (const auto moment : {&HostStore::exp_avg, &HostStore::exp_avg_sq}) {
      const auto* values = reinterpret_cast<const float*>(((*wide).*moment)(unit));
      const auto* rounded = reinterpret_cast<const bfloat16*>(((*narrow).*moment)(unit));
      for (std::size_t i = 0; i < elements; ++i)
        ASSERT_EQ(rounded[i].bits, to_bfloat16(values[i]).bits) << unit << " at " << i;
    }
    EXPECT_EQ(std::memcmp(narrow->weights(unit), wide->weights(unit), 2 * elements), 0);
    EXPECT_EQ(std::memcmp(narrow->remainder(unit), wide->remainder(unit), 2 * elements), 0);
  }
  // To fp32 and back nothing is lost.
  rig_.save(*narrow, options("narrow"));
  expect_user_error([&] { load("narrow", *wide, OtherMoments::refused); }, {"--moments bf16"});
  load("narrow", *wide, OtherMoments::converted);
  rig_.save(*wide, options("again"));
  const auto last = rig_.make_store(config);
  load("again", *last, OtherMoments::converted);
  EXPECT_EQ(slabs(*last), slabs(*narrow));
}

TEST_F(CheckpointTest, TensorsOfManyBlocks) {
  ModelConfig config = checkpoint_config("llama", false);
  config.vocabulary = 400'003;  // 38 MB: three blocks, the last one odd
  const auto store = rig_.make_store(config);
  rig_.fill(*store, 2);
  BlockPool one(1);
  BackgroundSave save(*store, options(), one, 3);
  for (Index unit = 0; unit < store->model().unit_count(); ++unit) save.unit(unit);
  EXPECT_GT(save.wait().bytes, Index{400'003} * 24 * 4 * 3);
  const Checkpoint checkpoint(options().folder);
  EXPECT_EQ(checkpoint.find("/params/model.embed_tokens.weight")->entry->blocks.size(), 3U);
  const auto loaded = rig_.make_store(config);
  load_state(checkpoint, *loaded, LoadParts::all, rig_.pool);
  EXPECT_TRUE(slabs(*loaded) == slabs(*store));
}

TEST_F(CheckpointTest, SavingAndLoadingTakeBlocksNotCopies) {
  if (!kProcessIsOurs) GTEST_SKIP() << "a sanitizer's notes are larger than the model";
  ModelConfig config = checkpoint_config("llama", false);
  config.vocabulary = 1'000'003;  // 576 MB of state
  const auto store = rig_.make_store(config);
  {
    BlockPool two(2);
    const Index before = peak_bytes(true);
    BackgroundSave save(*store, options(), two, 2);
    for (Index unit = 0; unit < store->model().unit_count(); ++unit) save.unit(unit);
    save.wait();
    EXPECT_LT(peak_bytes(false) - before, 2 * kBlockBytes + (Index{16} << 20));
  }
  const Index before = peak_bytes(true);
  load_state(Checkpoint(options().folder), *store, LoadParts::all, rig_.pool);
  EXPECT_LT(peak_bytes(false) - before, 2 * kBlockBytes + (Index{16} << 20));
}

TEST_F(CheckpointTest, ManySavesLeaveFilesAndThreadsAndMemoryAsTheyWere) {
  const auto store = rig_.make_store(checkpoint_config("llama", false));
  constexpr Index kSmall = Index{128} << 10;
  const auto entries = [](const char* folder) {
    return std::distance(fs::directory_iterator(folder), {});
  };
  const auto save_often = [&] {
    for (int i = 0; i < 15; ++i) rig_.save(*store, options());
  };
  save_often();
  const auto files = entries("/proc/self/fd");
  const auto threads = entries("/proc/self/task");
  // The allocator's arenas grow until each has served a thread of a save; a leak grows each time.
  Index growth = std::numeric_limits<Index>::max();
  for (int i = 0; i < 4 && growth > kSmall; ++i) {
    const Index before = resident_bytes();
    save_often();
    growth = std::min(growth, resident_bytes() - before);
  }
  EXPECT_EQ(entries("/proc/self/fd"), files);
  EXPECT_EQ(entries("/proc/self/task"), threads);
  if (kProcessIsOurs) {
    EXPECT_LE(growth, kSmall);
  }
}

TEST_F(CheckpointTest, TwoStatesTwoCheckpoints) {
  const auto store = rig_.make_store(checkpoint_config("llama", false));
  rig_.fill(*store, 1);
  const Manifest first = read_manifest(rig_.save(*store, options("first")));
  // One bit of one moment, as a training step would change it.
  store->exp_avg_sq(2)[3] ^= std::byte{0x80};
  const Manifest second = read_manifest(rig_.save(*store, options("second")));
  EXPECT_FALSE(first == second);
}

TEST_F(CheckpointTest, AliasesAreRecorded) {
  const auto store = rig_.make_store(checkpoint_config("qwen2", true));
  const Manifest manifest = read_manifest(rig_.save(*store, options()));
  EXPECT_EQ(manifest.aliases,
            (std::map<std::string, std::string>{{"lm_head.weight", "model.embed_tokens.weight"}}));
}

TEST_F(CheckpointTest, AnyFlippedBitIsFoundAndNamed) {
  const auto store = rig_.make_store(checkpoint_config("llama", false));
  rig_.fill(*store, 3);
  const fs::path folder = rig_.save(*store, options());
  verify(folder);
  std::size_t flips = 0;
  for (const auto& [name, content] : files_of(folder)) {
    if (name == kViewName) continue;  // nothing reads it
    const std::size_t step = std::max<std::size_t>(content.size() / 25, 1);
    for (std::size_t at = 0; at < content.size(); at += step) {
      std::string damaged = content;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << (at % 8));
      put_file(folder / name, damaged);
      // The last byte of the marker is a line's end, and may be another blank.
      if (name != kCompleteName || at + 1 < content.size()) {
        const std::string named = name == kCompleteName ? std::string(kManifestName) : name;
        expect_user_error([&] { verify(folder); }, {named});
        EXPECT_THROW(verify(folder), DamagedCheckpoint) << name << " at " << at;
        ++flips;
      }
    }
    put_file(folder / name, content);
  }
  EXPECT_GT(flips, 150U);
  verify(folder);
}

TEST_F(CheckpointTest, CutAndMissingFilesAreFoundAndNamed) {
  const auto store = rig_.make_store(checkpoint_config("llama", false));
  const fs::path folder = rig_.save(*store, options());
  for (const auto& [name, content] : files_of(folder)) {
    if (name == kViewName) continue;  // nothing reads it
    for (const std::size_t size : {std::size_t{0}, content.size() / 2, content.size() - 1}) {
      if (name == kCompleteName && size + 1 == content.size()) continue;  // the line's end
      put_file(folder / name, std::string_view(content).substr(0, size));
      EXPECT_THROW(verify(folder), UserError) << name << " cut to " << size;
    }
    fs::remove(folder / name);
    expect_user_error([&] { verify(folder); }, {name});
    put_file(folder / name, content);
  }
  verify(folder);
}

TEST_F(CheckpointTest, AnotherModelIsRefusedByTensor) {
  ModelConfig config = checkpoint_config("llama", false);
  const auto store = rig_.make_store(config);
  const Checkpoint checkpoint(rig_.save(*store, options()));
  config.intermediate = 38;
  const auto wider = rig_.make_store(config);
  expect_user_error([&] { load_state(checkpoint, *wider, LoadParts::all, rig_.pool); },
                    {"mlp.", "37", "38"});
  config = checkpoint_config("llama", false);
  config.layers = 4;
  const auto deeper = rig_.make_store(config);
  expect_user_error([&] { load_state(checkpoint, *deeper, LoadParts::all, rig_.pool); },
                    {"layers.3.", "missing"});
  config.layers = 2;
  const auto shallower = rig_.make_store(config);
  expect_user_error([&] { load_state(checkpoint, *shallower, LoadParts::all, rig_.pool); },
                    {"layers.2.", "no part of the model"});
}

TEST_F(CheckpointTest, WeightsAloneLeaveMomentsAlone) {
  const ModelConfig config = checkpoint_config("qwen3", true);
  const auto store = rig_.make_store(config);
  rig_.fill(*store, 4);
  const Checkpoint checkpoint(rig_.save(*store, options()));
  const auto loaded = rig_.make_store(config);
  load_state(checkpoint, *loaded, LoadParts::weights, rig_.pool);
  for (Index unit = 0; unit < store->model().unit_count(); ++unit) {
    const auto elements = static_cast<std::size_t>(store->model().unit(unit).slab_elements);
    EXPECT_EQ(std::memcmp(loaded->weights(unit), store->weights(unit), elements * 2), 0);
    EXPECT_EQ(std::memcmp(loaded->remainder(unit), store->remainder(unit), elements * 2), 0);
    for (std::size_t i = 0; i < 4 * elements; ++i)
      ASSERT_EQ(loaded->exp_avg(unit)[i], std::byte{0});
  }
}

TEST_F(CheckpointTest, ASaveThatIsNotHandedEveryUnitLeavesNothing) {
  const auto store = rig_.make_store(checkpoint_config("llama", false));
  {
    BackgroundSave save(*store, options(), rig_.blocks, 2);
    save.unit(0);
    save.unit(1);
    EXPECT_FALSE(save.done());
  }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(CheckpointTest, AHandedOverSaveIsFinishedByItsEnd) {
  const auto store = rig_.make_store(checkpoint_config("llama", false));
  rig_.fill(*store, 5);
  {
    SaveOptions slow = options();
    slow.bytes_per_second = 2'000'000;
    BackgroundSave save(*store, slow, rig_.blocks, 2);
    for (Index unit = 0; unit < store->model().unit_count(); ++unit) save.unit(unit);
  }
  verify(options().folder);
}

TEST_F(CheckpointTest, AnExistingCheckpointGivesWayOnlyAtTheEnd) {
  const auto store = rig_.make_store(checkpoint_config("llama", false));
  rig_.fill(*store, 6);
  const auto before = files_of(rig_.save(*store, options()));
  rig_.fill(*store, 7);
  SaveOptions again = options();
  again.read_back = true;
  BackgroundSave save(*store, again, rig_.blocks, 2);
  for (Index unit = 0; unit + 1 < store->model().unit_count(); ++unit) save.unit(unit);
  EXPECT_EQ(files_of(again.folder), before);
  save.unit(store->model().head_unit());
  save.wait();
  verify(again.folder);
  EXPECT_NE(files_of(again.folder), before);
}

TEST_F(CheckpointTest, ADiskThatIsFullFromTheStartLeavesNothing) {
  const auto store = rig_.make_store(checkpoint_config("llama", false));
  const FileSizeLimit limit(30'000);
  EXPECT_THROW(BackgroundSave(*store, options(), rig_.blocks, 2), Error);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(CheckpointTest, ADiskThatFailsMidwayIsReportedAndLeavesTheOldOne) {
  const auto store = rig_.make_store(checkpoint_config("llama", false));
  rig_.fill(*store, 8);
  const auto before = files_of(rig_.save(*store, options()));
  {
    BackgroundSave save(*store, options(), rig_.blocks, 2);
    save.unit(0);
    const FileSizeLimit limit(30'000);
    // Units are taken at once after the failure: training is not held up by a dead disk.
    for (Index unit = 1; unit < store->model().unit_count(); ++unit) save.unit(unit);
    EXPECT_THROW(save.wait(), Error);
    EXPECT_TRUE(save.done());
  }
  EXPECT_EQ(files_of(options().folder), before);
  EXPECT_FALSE(fs::exists(options().folder.string() + ".megatrain.tmp"));
}

TEST(Manifest, RoundTrips) {
  Manifest manifest;
  manifest.step = 12;
  manifest.block_bytes = 8192;
  manifest.aliases = {{"b", "a"}};
  manifest.files = {{"config.json", 3, 0x0123456789abcdef}};
  manifest.shards = {{"shard_00000.h5",
                      123456,
                      7,
                      {{"/params/a", FileType::f32, {50, 60}, {1, 2}},
                       {"/params/s", FileType::bf16, {}, {3}},
                       {"/params/e", FileType::f32, {0, 4}, {}}}}};
  const std::string text = to_json(manifest);
  EXPECT_EQ(parse_manifest(text, "m"), manifest);
  EXPECT_EQ(to_json(parse_manifest(text, "m")), text);
}

TEST(Manifest, HostileOnesAreRefusedByName) {
  const std::string good =
      R"({"format":"megatrain-checkpoint","version":1,"step":1,"block_bytes":4096,"aliases":{},)"
      R"("files":[{"name":"a","bytes":1,"xxh3":"0000000000000000"}],"shards":[{"name":"s.h5",)"
      R"("bytes":9,"metadata_xxh3":"0000000000000001","datasets":[{"path":"/p","dtype":"F32",)"
      R"("shape":[3],"xxh3":["0000000000000002"]}]}]})";
  (void)parse_manifest(good, "m");
  struct Case {
    std::string_view from, to, says;
  };
  for (const Case& c :
       std::initializer_list<Case>{{"megatrain-checkpoint", "other", "format"},
                                   {"\"version\":1", "\"version\":2", "version"},
                                   {"\"step\":1", "\"step\":-1", "step"},
                                   {"\"step\":1", "\"step\":1,\"world\":4", "world"},
                                   {"4096", "1000", "block_bytes"},
                                   {"4096", "9223372036854775807", "block_bytes"},
                                   {"\"name\":\"a\"", "\"name\":\"../a\"", "name"},
                                   {"\"name\":\"s.h5\"", "\"name\":\"/etc/passwd\"", "name"},
                                   {"\"name\":\"s.h5\"", "\"name\":\"a\"", "twice"},
                                   {"0000000000000001", "000000000000000g", "metadata_xxh3"},
                                   {"\"F32\"", "\"F33\"", "dtype"},
                                   {"\"F32\"", "\"F4\"", "dtype"},
                                   {"[3]", "[-3]", "shape"},
                                   {"[3]", "[3037000500,3037000500,4]", "overflow"},
                                   {"[3]", "[3000]", "blocks"},
                                   {"[\"0000000000000002\"]", "[]", "blocks"},
                                   {"\"bytes\":9,", "", "bytes"},
                                   {"\"aliases\":{}", "\"aliases\":[]", "aliases"}}) {
    std::string bad = good;
    const std::size_t at = bad.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    bad.replace(at, c.from.size(), c.to);
    SCOPED_TRACE(std::string(c.to));
    expect_user_error([&] { (void)parse_manifest(bad, "m"); }, {c.says});
  }
}

TEST(TrainingRecord, EveryFieldIsSavedAndRead) {
  TrainingRecord record;
  record.options = {{"lr", "0.001"}, {"data", "a b"}};
  record.numerics_key = "compute = bf16\nwaves = 1\n";
  std::set<std::string> texts;
  std::size_t fields = 0;
  const auto check = [&] {
    const std::string text = to_json(record);
    EXPECT_EQ(parse_training_record(text, "t"), record);
    EXPECT_TRUE(texts.insert(text).second) << "a field that is not saved";
  };
  check();
  for_each_field(record.state, [&](std::string_view, auto& field) {
    field += static_cast<std::remove_reference_t<decltype(field)>>(static_cast<double>(++fields) +
                                                                   1.0 / 3.0);
    check();
  });
  EXPECT_GE(fields, 10U);
}

TEST(TrainingRecord, LackingOrUnknownFieldsAreRefusedByName) {
  const std::string good = to_json(TrainingRecord{});
  const TrainState state;
  for_each_field(state, [&](std::string_view name, auto) {
    std::string bad = good;
    bad.replace(bad.find(name), name.size(), std::string(name) + "x");
    expect_user_error([&] { (void)parse_training_record(bad, "t"); }, {name});
  });
  std::string more = good;
  more.insert(more.find("\"step\""), "\"new\": 1, ");
  expect_user_error([&] { (void)parse_training_record(more, "t"); }, {"fields"});
}

TEST(CheckpointFolder, KeepsTheLastAndEverySoMany) {
  const TemporaryFolder folder;
  const CheckpointFolder checkpoints(folder.path());
  const auto make = [&](const std::string& name, bool finished = true) {
    fs::create_directories(folder / name);
    if (finished) put_file(folder / name / "COMPLETE", "x");
  };
  EXPECT_EQ(checkpoints.of_step(1000).filename(), "step_00001000");
  EXPECT_EQ(checkpoints.of_step(123456789).filename(), "step_123456789");
  for (const Index step : {100, 200, 300, 400, 123456789})
    make(checkpoints.of_step(step).filename().string());
  make("step_00000500", false);
  make("step_00000600.megatrain.tmp", false);
  make("step_00000700.megatrain.old");
  make("step_x");
  make("step_400");  // not as they are named
  put_file(folder / "notes.txt", "mine");
  EXPECT_EQ(checkpoints.finished(), (std::vector<Index>{123456789, 400, 300, 200, 100}));
  EXPECT_EQ(checkpoints.named(), (std::vector<Index>{123456789, 500, 400, 300, 200, 100}));
  checkpoints.published(400, {.keep_last = 2, .keep_every = 200});
  EXPECT_EQ(checkpoints.finished(), (std::vector<Index>{123456789, 400, 200}));
  EXPECT_EQ(get_file(folder / "latest"), "step_00000400\n");
  // The one just written stays, even if others are newer by name.
  checkpoints.published(200, {.keep_last = 1});
  EXPECT_EQ(checkpoints.finished(), (std::vector<Index>{123456789, 200}));
  checkpoints.remove_leftovers();
  EXPECT_FALSE(fs::exists(folder / "step_00000600.megatrain.tmp"));
  EXPECT_FALSE(fs::exists(folder / "step_00000700.megatrain.old"));
  EXPECT_TRUE(fs::exists(folder / "step_00000500"));  // damaged, not ours to judge
  EXPECT_TRUE(fs::exists(folder / "step_x"));
  EXPECT_TRUE(fs::exists(folder / "notes.txt"));
}

TEST_F(CheckpointTest, OneThatRepeatsTheOneBeforeIsNoticed) {
  const CheckpointFolder checkpoints(folder_ / "all");
  fs::create_directories(checkpoints.path());
  const auto store = rig_.make_store(checkpoint_config("llama", false));
  rig_.fill(*store, 1);
  const auto save = [&](Index step) {
    SaveOptions saved = options();
    saved.folder = checkpoints.of_step(step);
    saved.step = step;
    rig_.save(*store, saved);
    return checkpoints.repeated_by(step);
  };
  EXPECT_EQ(save(1), std::nullopt);
  EXPECT_EQ(save(2), 1);
  reinterpret_cast<float*>(store->exp_avg(1))[0] += 1;
  EXPECT_EQ(save(3), std::nullopt);
  EXPECT_EQ(save(4), 3);
  // A damaged one says nothing; the one before it differs.
  fs::resize_file(checkpoints.of_step(3) / "manifest.json", 10);
  EXPECT_EQ(checkpoints.repeated_by(4), std::nullopt);
}

}  // namespace
}  // namespace megatrain::io
