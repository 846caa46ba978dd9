#include <hdf5.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "io/hdf5/hdf5_writer.h"
#include "io/json.h"
#include "io/tensors/tensor_set.h"
#include "tests/launcher/run_test.h"

namespace megatrain::launcher {
namespace {

namespace fs = std::filesystem;

bool says(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// Commands on a small model that `train` made.
class FileCommands : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    const Outcome outcome = run_program(train("run", small({"--steps", "1"})));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  [[nodiscard]] std::string model() const { return path("run/model"); }
  void convert(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "convert");
    const Outcome outcome = run_program(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  /// Overwrites an element of a tensor of a checkpoint of one shard.
  void poke(const std::string& checkpoint, const std::string& tensor, Index at, float value) const {
    const fs::path shard = fs::path(checkpoint) / "shard_00000.h5";
    const Index offset = io::Hdf5File(shard).find(tensor)->offset;
    std::fstream file(shard, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset + at * 4);
    file.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
};

TEST_F(FileCommands, ConvertThereAndBackAndEveryCommandAgrees) {
  convert({model(), path("c")});
  const Outcome verified = run_program({"verify", path("c")});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_TRUE(says(verified.out, "is whole: step 0, a llama model, 39 tensors")) << verified.out;
  EXPECT_TRUE(says(verified.out, "weights alone")) << verified.out;

  convert({path("c"), path("back"), "--type", "fp32", "--shard-size", "1MiB"});
  EXPECT_TRUE(fs::exists(folder_ / "back" / "model.safetensors.index.json"));
  const Outcome same = run_program({"diff", model(), path("back")});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_TRUE(says(same.out, "equal: 39 tensors")) << same.out;
  EXPECT_EQ(run_program({"diff", model(), path("c")}).exit_code, 0);

  // A folder that came back is a model: it can be sampled.
  const Outcome text =
      run_program({"generate", "--model", path("back"), "--prompt", "line", "--tokens", "3",
                   "--device", "cpu", "--threads", "2", "--compute", "fp32"});
  EXPECT_EQ(text.exit_code, 0) << text.err;

  // The default of a folder is bf16, which is another type.
  convert({path("c"), path("half")});
  const Outcome rounded = run_program({"diff", model(), path("half"), "--all"});
  EXPECT_EQ(rounded.exit_code, 1);
  EXPECT_TRUE(says(rounded.out, "'lm_head.weight' is F32 [258, 192] in A, BF16 [258, 192] in B"))
      << rounded.out;
  EXPECT_TRUE(says(rounded.out, "39 differ")) << rounded.out;
}

TEST_F(FileCommands, InspectTellsWhatIsThere) {
  convert({model(), path("c"), "--type", "bf16", "--h5-bf16", "uint16"});
  for (const std::string& name :
       {model(), path("run/model/model.safetensors"), path("c"), path("c/shard_00000.h5")}) {
    SCOPED_TRACE(name);
    const Outcome outcome = run_program({"inspect", name, "--stats", "--json"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const io::JsonValue root = io::parse_json(outcome.out, "inspect");
    const auto count = [&](const char* key) {
      return *root.find("totals")->find(key)->as<std::int64_t>();
    };
    EXPECT_EQ(count("tensors"), 39);
    EXPECT_EQ(count("parameters"), 1'673'664);
    const bool half = name.starts_with(path("c"));
    EXPECT_EQ(count("bytes"), 1'673'664 * (half ? 2 : 4));
    const auto& tensors = *root.find("tensors")->as<io::JsonValue::Array>();
    ASSERT_EQ(tensors.size(), 39U);
    EXPECT_EQ(*tensors.front().find("type")->as<std::string>(), half ? "BF16" : "F32");
    EXPECT_EQ(*tensors.front().find("statistics")->find("nan")->as<std::int64_t>(), 0);
    EXPECT_NEAR(*tensors.front().find("statistics")->find("std")->as<double>(), 0.02, 1e-3);

    const Outcome table = run_program({"inspect", name});
    ASSERT_EQ(table.exit_code, 0) << table.err;
    EXPECT_TRUE(says(table.out, "39 tensors, 1673664 parameters")) << table.out;
    EXPECT_TRUE(says(table.out, "model.layers.3.self_attn.q_proj.weight")) << table.out;
  }
  EXPECT_TRUE(says(run_program({"inspect", path("c")}).out, "step 0"));
}

TEST_F(FileCommands, InspectCountsWhatIsNotFinite) {
  convert({model(), path("c")});
  poke(path("c"), "/params/model.norm.weight", 0, std::numeric_limits<float>::quiet_NaN());
  poke(path("c"), "/params/model.norm.weight", 1, std::numeric_limits<float>::infinity());
  poke(path("c"), "/params/model.norm.weight", 2, 0);
  // Damaged values can be looked at: that is what one does with a damaged checkpoint.
  const Outcome outcome = run_program({"inspect", path("c"), "--stats", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const io::JsonValue root = io::parse_json(outcome.out, "inspect");
  const io::JsonValue& norm = root.find("tensors")->as<io::JsonValue::Array>()->back();
  EXPECT_EQ(*norm.find("name")->as<std::string>(), "/params/model.norm.weight");
  for (const char* key : {"nan", "infinite", "zero"})
    EXPECT_EQ(*norm.find("statistics")->find(key)->as<std::int64_t>(), 1) << key;
}

TEST_F(RunTest, InspectListsWhatCannotBeReadWithTheReason) {
  {
    const hid_t file = H5Fcreate(path("other.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hsize_t size = 4;
    const hid_t space = H5Screate_simple(1, &size, nullptr);
    const hid_t chunked = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(chunked, 1, &size);
    for (const auto& [name, type, options] :
         {std::tuple("chunked", H5T_IEEE_F32LE, chunked),
          std::tuple("foreign", H5T_IEEE_F32BE, hid_t{H5P_DEFAULT})})
      H5Dclose(H5Dcreate2(file, name, type, space, H5P_DEFAULT, options, H5P_DEFAULT));
    H5Pclose(chunked);
    H5Sclose(space);
    H5Fclose(file);
  }
  const Outcome table = run_program({"inspect", path("other.h5"), "--stats"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_TRUE(says(table.out, "not readable: chunked layout")) << table.out;
  EXPECT_TRUE(says(table.out, "not readable: big-endian")) << table.out;
  EXPECT_TRUE(says(table.out, "2 tensors are not readable")) << table.out;
  const io::JsonValue root =
      io::parse_json(run_program({"inspect", path("other.h5"), "--json"}).out, "inspect");
  const io::JsonValue& first = root.find("tensors")->as<io::JsonValue::Array>()->front();
  EXPECT_TRUE(first.find("type")->is_null());
  EXPECT_EQ(*first.find("not_readable")->as<std::string>(), "chunked layout");
  const Outcome same = run_program({"diff", path("other.h5"), path("other.h5")});
  EXPECT_EQ(same.exit_code, 2);
  EXPECT_TRUE(says(same.err, "chunked layout")) << same.err;
}

TEST_F(FileCommands, VerifyNamesFileTensorAndPlaceUntilResealed) {
  convert({model(), path("c")});
  convert({model(), path("whole")});
  poke(path("c"), "/params/model.norm.weight", 7, 0.25F);
  const Outcome damaged = run_program({"verify", path("c")});
  EXPECT_EQ(damaged.exit_code, 2);
  for (const char* part : {"shard_00000.h5", "/params/model.norm.weight", "bytes 0 to 768"})
    EXPECT_TRUE(says(damaged.err, part)) << damaged.err;

  const Outcome different = run_program({"diff", path("whole"), path("c")});
  EXPECT_EQ(different.exit_code, 1);
  EXPECT_TRUE(says(different.out, "'/params/model.norm.weight' differs at [7]: ")) << different.out;
  EXPECT_TRUE(says(different.out, ", 0.25 in B")) << different.out;
  EXPECT_TRUE(says(different.out, "1 of 192 elements differ")) << different.out;

  const Outcome resealed = run_program({"verify", path("c"), "--reseal"});
  EXPECT_EQ(resealed.exit_code, 0) << resealed.err;
  EXPECT_TRUE(says(resealed.out, "changed: shard_00000.h5: '/params/model.norm.weight'"))
      << resealed.out;
  EXPECT_EQ(run_program({"verify", path("c")}).exit_code, 0);
  convert({path("c"), path("edited"), "--type", "fp32"});
  EXPECT_EQ(run_program({"diff", model(), path("edited")}).exit_code, 1);
}

TEST_F(FileCommands, DiffTellsDifferentFromUnusable) {
  convert({model(), path("c")});
  fs::copy(model(), path("cut"), fs::copy_options::recursive);
  fs::resize_file(folder_ / "cut" / "model.safetensors", 5000);
  EXPECT_EQ(run_program({"diff", model(), path("cut")}).exit_code, 2);
  EXPECT_EQ(run_program({"diff", model(), path("absent")}).exit_code, 2);
  EXPECT_EQ(run_program({"diff", model()}).exit_code, 2);

  // A tensor more.
  const std::vector<io::Hdf5DatasetSpec> specs = {{"/params/a", io::FileType::f32, {2}},
                                                  {"/params/b", io::FileType::f32, {2}}};
  io::create_hdf5(folder_ / "one.h5", std::span(specs).first(1), {});
  io::create_hdf5(folder_ / "two.h5", specs, {});
  const Outcome more = run_program({"diff", path("one.h5"), path("two.h5")});
  EXPECT_EQ(more.exit_code, 1) << more.err;
  EXPECT_TRUE(says(more.out, "'/params/b' F32 [2] is only in B")) << more.out;
}

TEST_F(FileCommands, WhatCannotBeDoneIsRefused) {
  struct Case {
    std::vector<std::string> arguments;
    std::string says;
  };
  convert({model(), path("c")});
  for (const Case& c : std::initializer_list<Case>{
           {{"inspect"}, "needs PATH"},
           {{"inspect", path("text.txt")}, "safetensors"},
           {{"inspect", path("c/all.h5")}, "the checkpoint instead: '" + path("c") + "'"},
           {{"inspect", path("run")}, "run/model'"},
           {{"generate", "--model", path("run")}, "run/model'"},
           {{"convert", path("run"), path("d")}, "run/model'"},
           {{"diff", path("run"), path("c")}, "run/model'"},
           {{"verify", model()}, "no checkpoint"},
           {{"verify", path("c"), "more"}, "more"},
           {{"convert", model()}, "needs TO"},
           {{"convert", model(), path("c")}, "exists"},
           {{"convert", path("absent"), path("d")}, "absent"},
           {{"convert", model(), path("d"), "--type", "fp16"}, "fp16"},
           {{"convert", model(), path("d"), "--h5-bf16", "float"}, "bf16"},
           {{"convert", path("c"), path("d"), "--h5-bf16", "float"}, "bf16"},
           {{"convert", model(), path("d"), "--shard-size", "0"}, "--shard-size"}}) {
    const Outcome outcome = run_program(c.arguments);
    EXPECT_EQ(outcome.exit_code, 2) << c.says;
    EXPECT_TRUE(says(outcome.err, c.says)) << outcome.err << " does not say " << c.says;
    EXPECT_FALSE(fs::exists(folder_ / "d"));
  }
  // A disk that is full: nothing is left, and it is said.
  const Outcome full = run_program({"convert", model(), path("d")}, 1'000'000);
  EXPECT_NE(full.exit_code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "d"));
  EXPECT_FALSE(fs::exists(folder_ / "d.megatrain.tmp"));
}

TEST_F(FileCommands, HelpNamesEveryOptionWithItsUnit) {
  for (const char* command : {"inspect", "verify", "convert", "diff"}) {
    const Outcome help = run_program({command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_TRUE(says(help.out, "--threads N")) << help.out;
  }
  EXPECT_TRUE(says(run_program({"convert", "--help"}).out, "--type fp32|bf16"));
}

/// What the shell says of a command of the program with its output there.
int exit_code_of(const std::string& arguments, const std::string& redirection) {
  const std::string command = program_path() + " " + arguments + redirection;
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(FileCommands, OutputThatIsLostIsAFailure) {
  const std::string errors = path("errors");
  const std::string diff = "diff " + model() + " " + model();
  for (const std::string& command :
       {"inspect " + model(), "inspect --json " + model(), diff,
        std::string("plan --model llama-tiny --device cpu --seq-len 16 --batch-tokens 16"),
        "generate --device cpu --tokens 2 --model " + model(), std::string("--help")}) {
    SCOPED_TRACE(command);
    // diff has another meaning for 1.
    EXPECT_EQ(exit_code_of(command, " > /dev/full 2> " + errors), command == diff ? 2 : 1);
    EXPECT_TRUE(says(read_file(errors), "cannot write to standard output")) << read_file(errors);
    // A reader that has seen enough is no mistake.
    EXPECT_EQ(exit_code_of(command, " 2> " + errors + " | true"), 0);
    EXPECT_EQ(read_file(errors), "");
  }
}

}  // namespace
}  // namespace megatrain::launcher
