/// @file
/// `megatrain train --tensor-parallel` as several processes: what one would train, save and export.

#include <csignal>

#include <cmath>
#include <cstdlib>

#include "io/hf_folder.h"
#include "io/safetensors.h"
#include "tests/launcher/ranks.h"
#include "tests/parallel/meeting.h"

namespace megatrain::launcher {
namespace {

namespace fs = std::filesystem;
using parallel::says;
using parallel::Started;

/// The same for parameters, as a part of the largest.
constexpr double kParameterBound = 2e-5;

class TensorRanks : public Ranks {
 protected:
  /// Where a gradient is all rounding, AdamW makes a step of it all the same.
  static constexpr const char* kRate = "1e-3";

  /// As run(), by one rank.
  [[nodiscard]] std::vector<std::string> alone(const std::string& out,
                                               std::vector<std::string> more = {}) const {
    return parts(1, out, std::move(more));
  }
  /// As run(), with `parts` ranks in a tensor group, which meet in every micro-batch.
  [[nodiscard]] std::vector<std::string> parts(int parts, const std::string& out,
                                               std::vector<std::string> more = {}) const {
    std::vector<std::string> options = {
        "--tensor-parallel", std::to_string(parts), "--lr", kRate, "--micro-batch", "3"};
    append(options, std::move(more));
    return run(out, options);
  }
  /// Losses and norms of two runs, and every parameter.
  void expect_equal(const std::string& a, const std::string& b) const {
    expect_close(a, b);
    const io::SafetensorsFile x(path(a + "/model/model.safetensors"));
    const io::SafetensorsFile y(path(b + "/model/model.safetensors"));
    ASSERT_EQ(x.header().tensors.size(), y.header().tensors.size());
    double largest = 0, distance = 0;
    for (const io::TensorInfo& tensor : x.header().tensors) {
      const io::TensorInfo* other = y.find(tensor.name);
      ASSERT_NE(other, nullptr) << tensor.name;
      ASSERT_EQ(tensor.shape, other->shape);
      std::vector<float> found(static_cast<std::size_t>(tensor.elements())), expected(found);
      x.read_floats(tensor, 0, found);
      y.read_floats(*other, 0, expected);
      for (std::size_t i = 0; i < found.size(); ++i) {
        largest = std::max<double>(largest, std::abs(expected[i]));
        distance = std::max<double>(distance, std::abs(found[i] - expected[i]));
      }
    }
    EXPECT_LE(distance, kParameterBound * largest);
  }
  /// The shards of two checkpoints, byte by byte.
  void expect_same_shards(const std::string& a, const std::string& b) const {
    int compared = 0;
    for (const auto& entry : fs::directory_iterator(path(a))) {
      if (entry.path().extension() != ".h5") continue;
      EXPECT_TRUE(read_file(entry.path()) ==
                  read_file(path(b) + "/" + entry.path().filename().string()))
          << entry.path();
      ++compared;
    }
    EXPECT_GE(compared, 2);
  }
  /// A model folder of llama-tiny with heads that four parts can have, and weights of its own.
  [[nodiscard]] std::string four_heads() const {
    ModelConfig config = preset("llama-tiny");
    config.heads = 8;
    config.kv_heads = 4;
    config.head_dim = 16;
    const auto device = make_cpu_device({.threads = 1});
    ThreadPool pool(1);
    HostStore store(Model(config), {.master = MasterFormat::fp32}, *device, pool);
    initialize(store, 3, pool);
    io::export_model(store, io::preset_side_files(config, true),
                     {.folder = path("four-heads"), .type = DType::f32}, pool);
    return path("four-heads");
  }
};

TEST_F(TensorRanks, TrainWhatOneTrains) {
  expect_done(alone("one"));
  expect_done(launch(2, parts(2, "parts")));
  expect_equal("parts", "one");
  expect_done(launch(4, parts(2, "shards", {"--shard-group", "2"})));
  expect_equal("shards", "one");
  expect_done(launch(4, parts(2, "replicas", {"--shard-group", "1", "--check-replicas", "2"})));
  expect_equal("replicas", "one");
  // The same ranks again: the same bits.
  expect_done(launch(4, parts(2, "again", {"--shard-group", "2"})));
  EXPECT_TRUE(model("again") == model("shards"));
}

/// What all parts hold stays equal: chance is the same in each.
TEST_F(TensorRanks, MomentsInBf16AgreeInAllParts) {
  const std::vector<std::string> bf16 = {"--moments", "bf16"};
  expect_done(alone("one", bf16));
  expect_done(launch(2, parts(2, "parts", {"--moments", "bf16", "--check-replicas", "1"})));
  expect_close("parts", "one");
}
TEST_F(TensorRanks, MastersInBf16AgreeInAllParts) {
  expect_done(launch(
      2, parts(2, "parts", {"--masters", "bf16", "--compute", "bf16", "--check-replicas", "1"})));
}

TEST_F(TensorRanks, TrainAFolderInFourParts) {
  const std::vector<std::string> folder = {"--model", four_heads()};
  expect_done(alone("one", folder));
  expect_done(launch(4, parts(4, "parts", folder)));
  expect_equal("parts", "one");
}

TEST_F(TensorRanks, TrainGpt2InThreeParts) {
  const std::vector<std::string> gpt2 = {"--model", "gpt2-tiny"};
  expect_done(alone("one", gpt2));
  expect_done(launch(3, parts(3, "parts", gpt2)));
  expect_equal("parts", "one");
}

TEST_F(TensorRanks, SaveInPartsAndGoOnOtherwise) {
  expect_done(launch(2, parts(2, "two", {"--save-every", "3"})));
  const std::string saved = path("two/checkpoints/step_00000003");
  const std::vector<std::string> from = {"--resume", saved};
  // In as many parts it goes on as if it had never stopped.
  expect_done(launch(2, parts(2, "same", from)));
  EXPECT_TRUE(model("same") == model("two"));

  Started refused(alone("refused", from));
  EXPECT_EQ(refused.wait(), 2);
  EXPECT_TRUE(says(refused.output(), "parts (--tensor-parallel): 2 there, 1 here"));
  EXPECT_TRUE(says(refused.output(), "--accept-change numerics"));
  const std::vector<std::string> accepted = {"--resume", saved, "--accept-change", "numerics"};
  expect_done(alone("alone", accepted));
  expect_done(launch(4, parts(2, "shards", accepted)));
  const auto whole = series(path("two/metrics.jsonl"), "loss");
  for (const char* out : {"alone", "shards"}) {
    const auto rest = series(path(std::string(out) + "/metrics.jsonl"), "loss");
    ASSERT_EQ(rest.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(rest[i] / whole[3 + i], 1, kLossBound) << out;
  }
}

/// A checkpoint says nothing of who wrote it: what is loaded is what is saved again, whoever does.
TEST_F(TensorRanks, WriteTheSameCheckpointAsOne) {
  const std::vector<std::string> saves = {"--save-every", "6", "--val-every", "0"};
  const std::string folder = "/checkpoints/step_00000006";
  const auto again = [&](const std::string& from) {
    std::vector<std::string> options = saves;
    append(options, {"--resume", path(from + folder), "--accept-change", "numerics"});
    return options;
  };
  expect_done(alone("one", saves));
  expect_done(launch(2, parts(2, "parts", again("one"))));
  expect_same_shards("one" + folder, "parts" + folder);
  expect_done(launch(4, parts(2, "shards", again("parts"))));
  expect_same_shards("one" + folder, "shards" + folder);
  EXPECT_TRUE(model("shards") == model("one"));

  expect_done(launch(4, parts(2, "trained", saves)));
  expect_done(alone("alone", again("trained")));
  expect_same_shards("trained" + folder, "alone" + folder);
  EXPECT_TRUE(model("alone") == model("trained"));
}

TEST_F(TensorRanks, WhatNoRanksCanShareIsRefused) {
  const auto expect_refused = [](const std::vector<std::string>& command,
                                 std::initializer_list<const char*> texts) {
    Started program(command);
    EXPECT_EQ(program.wait(), 2) << program.output();
    for (const char* text : texts) EXPECT_TRUE(says(program.output(), text)) << program.output();
  };
  expect_refused(launch(4, parts(4, "out")),
                 {"--tensor-parallel 4", "2 key/value heads", "can be 1, 2"});
  expect_refused(launch(3, parts(2, "out")), {"--tensor-parallel is 2", "3 ranks"});
  expect_refused(parts(2, "out"), {"--tensor-parallel is 2", "1 rank", "megatrain launch"});
  expect_refused(parts(0, "out"), {"--tensor-parallel"});
  expect_refused(launch(2, parts(2, "out", {"--shard-group", "2"})),
                 {"--shard-group is 2", "1 group of 2 ranks"});
  expect_refused(launch(2, parts(2, "out", {"--force", "embedding=rows"})), {"embedding"});
  EXPECT_FALSE(fs::exists(path("out")));
  // Ranks that were told other numbers of parts.
  const std::uint16_t port = parallel::free_port();
  std::vector<Started> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back(parts(1 + rank, "other", {"--rank-timeout", "4"}),
                       parallel::torchrun(rank, 2, port));
  for (Started& rank : ranks) {
    EXPECT_EQ(rank.wait(), 2) << rank.output();
    EXPECT_TRUE(says(rank.output(), "configuration"));
  }
}

TEST_F(TensorRanks, AKilledPartEndsTheOthersAndIsNamed) {
  auto ranks = parallel::start_ranks(4, 4, long_run("killed", {"--tensor-parallel", "2"}));
  ASSERT_TRUE(ranks[0].says("loss", 2));
  ranks[3].signal(SIGKILL);
  for (const std::size_t rank : {0U, 1U, 2U}) {
    EXPECT_EQ(ranks[rank].wait(), 1) << ranks[rank].output();
    EXPECT_TRUE(says(ranks[rank].output(), "rank 3"));
  }
}

TEST_F(TensorRanks, APlanIsThatOfOneRank) {
  const auto planned = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"plan", "--json"};
    append(arguments, small({"--model", "qwen2.5-7b", "--seq-len", "512", "--batch-tokens", "4096",
                             "--device-memory", "16GiB", "--host-memory", "512GiB"}));
    append(arguments, std::move(more));
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return io::parse_json(outcome.out, "plan");
  };
  const io::JsonValue one = planned({});
  const io::JsonValue part = planned({"--tensor-parallel", "4"});
  const io::JsonValue slice = planned({"--tensor-parallel", "4", "--ranks", "8"});
  EXPECT_EQ(number(part, "ranks"), 4);
  EXPECT_EQ(number(part, "tensor_parallel"), 4);
  EXPECT_EQ(number(part, "parameters"), number(one, "parameters"));
  EXPECT_NEAR(number(part, "store_bytes") / number(one, "store_bytes"), 0.25, 0.001);
  EXPECT_EQ(number(slice, "shard_group"), 2);
  EXPECT_NEAR(number(slice, "store_bytes") / number(one, "store_bytes"), 0.125, 0.001);
  // The files are those of the whole model.
  EXPECT_EQ(number(*part.find("save"), "bytes"), number(*one.find("save"), "bytes"));
}

}  // namespace
}  // namespace megatrain::launcher
