// Every kind of mistake: exit code 2, one message on stderr that names what is wrong, and nothing
// written.

#include <algorithm>

#include "tests/launcher/run_test.h"

namespace megatrain::launcher {
namespace {

namespace fs = std::filesystem;

/// The word that follows `before` in a message; empty when that is not there.
std::string word_after(const std::string& message, const std::string& before) {
  const auto at = message.find(before);
  if (at == std::string::npos) return "";
  const auto begin = at + before.size();
  const auto end = message.find_first_of(" .;\n", begin);
  return message.substr(begin, end - begin);
}

class BadInput : public RunTest {
 protected:
  /// @param words  what the message must hold
  void expect_refused(const std::vector<std::string>& arguments,
                      const std::vector<std::string>& words) {
    const Outcome outcome = run_program(arguments);
    std::string line;
    for (const std::string& argument : arguments) line += argument + ' ';
    EXPECT_EQ(outcome.exit_code, 2) << line << '\n' << outcome.err;
    for (const std::string& word : words)
      EXPECT_NE(outcome.err.find(word), std::string::npos)
          << line << "\nsays: " << outcome.err << "\nlacks: " << word;
    EXPECT_FALSE(fs::exists(path("run"))) << line;
  }
  /// The same for a run whose options are right but for `more`.
  void expect_run_refused(std::vector<std::string> more, const std::vector<std::string>& words) {
    std::vector<std::string> arguments = train("run", small({"--steps", "1"}));
    append(arguments, std::move(more));
    expect_refused(arguments, words);
  }
};

TEST_F(BadInput, OnTheCommandLine) {
  expect_refused({}, {"no command", "generate"});
  expect_refused({"trian"}, {"trian"});
  expect_refused(train("run", small({"--learning-rate", "1"})), {"--learning-rate"});
  expect_refused(train("run"), {"--model"});
  expect_refused({"train", "--model", "llama-tiny", "--data", path("text.txt")}, {"--out"});
  expect_refused({"train", "--model", "llama-tiny", "--out", path("run")}, {"--data"});
  expect_refused({"generate"}, {"--model"});
  expect_run_refused({"--foo", "3", "4"}, {"megatrain train", ": --foo 3 4\n"});
  expect_refused(train("run", small({"--deterministic=maybe"})), {"--deterministic", "maybe"});
  expect_run_refused({"--steps", "ten"}, {"--steps", "'ten'", "whole number"});
  expect_run_refused({"--steps", "0"}, {"--steps", "at least 1"});
  expect_run_refused({"--lr", "nan"}, {"--lr", "finite"});
  expect_run_refused({"--device", "tpu"}, {"--device", "'tpu'", "cpu, cuda"});
  expect_run_refused({"--compute", "fp16"}, {"--compute", "bf16"});
  expect_run_refused({"--device-memory", "lots"}, {"--device-memory", "'lots'", "8GiB"});
  expect_run_refused({"--threads", "1000000"}, {"--threads"});
}

TEST_F(BadInput, InTheConfigurationFile) {
  const auto expect = [&](const std::string& text, const std::vector<std::string>& words) {
    write_text(path("c.toml"), text);
    expect_refused({"train", "--config", path("c.toml"), "--out", path("run")}, words);
  };
  expect("[train]\nmodel = 'llama-tiny'\nsequence-length = 3\n",
         {"c.toml line 3", "'sequence-length'", "unknown key", "seq-len"});
  expect("steps = 3\n", {"line 1", "[train]"});
  expect("[plan]\nsteps = 3\n", {"[plan]", "[train]"});
  expect("[train]\nsteps = 'ten'\n", {"line 2", "'ten'"});
  expect("[train]\nsteps = [1, 2]\n", {"line 2", "one value"});
  expect("[train]\nsteps = \n", {"line 2"});
  expect("[train]\noverwrite = true\n", {"'overwrite'", "unknown key"});
  expect_refused({"train", "--config", path("none.toml")}, {"none.toml", "No such file"});
}

TEST_F(BadInput, InModelAndData) {
  expect_run_refused({"--model", "no-such-model"}, {"no-such-model", "folder", "llama-tiny"});
  fs::create_directories(path("empty"));
  expect_run_refused({"--model", path("empty")}, {"config.json"});
  expect_run_refused({"--data", path("none.txt")}, {"none.txt"});
  write_text(path("nothing.txt"), "");
  expect_run_refused({"--data", path("nothing.txt")}, {"nothing.txt"});
  write_text(path("bad.jsonl"), "{\"text\": 3}\n");
  expect_run_refused({"--data", path("bad.jsonl")}, {"bad.jsonl"});
  write_text(path("ids.bin"), std::string(400, '\7'));
  expect_run_refused({"--data", path("ids.bin")}, {"ids.bin", "vocabulary"});
  expect_run_refused({"--model", "qwen2.5-0.5b"}, {"text.txt"});
  expect_run_refused({"--val-every", "1"}, {"--val-data"});
  expect_run_refused({"--val-fraction", "0.1", "--val-data", path("text.txt")}, {"fraction"});

  // A configuration without weights.
  ASSERT_EQ(run_program(train("other", small({"--steps", "1"}))).exit_code, 0);
  fs::remove(path("other/model/model.safetensors"));
  expect_run_refused({"--model", path("other/model")}, {"safetensors"});
  write_text(path("other/model/model.safetensors"), "cut");
  expect_run_refused({"--model", path("other/model")}, {"model.safetensors"});
}

TEST_F(BadInput, InWhatIsAskedOfThePlan) {
  expect_run_refused({"--batch-tokens", "100"}, {"--batch-tokens 100", "96 or 128"});
  expect_run_refused({"--batch-tokens", "10"}, {"the nearest that work: 32"});
  expect_run_refused({"--micro-batch", "3"}, {"micro-batch", "4 sequences"});
  expect_run_refused({"--force", "slot=3"}, {"'slot'", "slots"});
  expect_run_refused({"--force", "slots"}, {"CHOICE=VALUE"});
  expect_run_refused({"--force", "slots=3", "--slots", "2"}, {"slots", "3", "2"});
  expect_run_refused({"--segment", "99"}, {"segment", "99"});
  expect_run_refused({"--force", "attention=cudnn"}, {"cuDNN", "CPU"});
  expect_run_refused({"--device-memory", "1MiB"}, {"1.00 MiB", "smallest that works is"});
  expect_run_refused({"--device-memory", "1000TiB"}, {"1000.00 TiB", "available"});
  expect_run_refused({"--host-memory", "1000TiB"}, {"--host-memory is 1000.00 TiB", "available"});
  expect_run_refused({"--host-memory", "257MiB"}, {"host memory", "1.00 MiB are available"});
  expect_refused({"generate", "--model", "llama-tiny", "--device", "cpu", "--prompt", "x",
                  "--host-memory", "1MiB"},
                 {"of weights", "1.00 MiB are available"});
  expect_run_refused({"--lr", "-1"}, {"-1"});
  expect_run_refused({"--lr", "1e300"}, {"--lr", "1e+300"});
  expect_run_refused({"--weight-decay", "1e10"}, {"--weight-decay", "lower"});
  expect_run_refused({"--clip", "-1"}, {"--clip", "at least 0"});
  expect_run_refused({"--seq-len", "9223372036854775807"}, {"--seq-len", "at most"});
  expect_run_refused({"--batch-tokens", "9223372036854775776"}, {"--batch-tokens", "at most"});
  expect_run_refused({"--trace", path("absent/trace.json")}, {"--trace", "absent"});
  expect_run_refused({"--trace", path("")}, {"--trace", "is a folder"});
  expect_run_refused({"--trace", "/proc/trace.json"}, {"--trace", "/proc/trace.json"});
  for (const char* option : {"--beta1", "--beta2", "--val-fraction"})
    expect_run_refused({option, "1"}, {option, "below 1"});
  expect_run_refused({"--eps", "0"}, {"--eps"});
  for (const char* option : {"--host-memory", "--device-memory", "--shard-size", "--save-rate"})
    expect_run_refused({option, "0"}, {option, "at least 1"});
  expect_run_refused({"--rates", path("text.txt")}, {"text.txt", "bench"});
  expect_run_refused({"--key", path("text.txt")}, {"text.txt", "key"});
  expect_refused({"generate", "--model", "llama-tiny", "--prompt", "x", "--top-p", "0"},
                 {"--top-p"});
}

TEST_F(BadInput, OptionsThatExcludeEachOther) {
  const auto expect = [&](const std::vector<std::string>& more,
                          const std::vector<std::string>& words) {
    expect_run_refused(more, words);
    std::vector<std::string> arguments = {"plan", "--steps", "1"};
    append(arguments, small(more));
    expect_refused(arguments, words);
  };
  expect({"--schedule", "constant", "--min-lr", "1e-4"},
         {"--min-lr 0.0001", "--schedule constant"});
  expect({"--min-lr", "1"}, {"--min-lr 1", "--lr 0.003"});
  expect({"--keep-every", "6"}, {"--keep-every 6", "--save-every"});
  expect({"--resume", "none", "--accept-change", "lr"}, {"--accept-change lr", "--resume none"});
  expect_run_refused({"--overwrite", "--accept-change", "lr"},
                     {"--accept-change lr", "--overwrite"});
  expect({"--val-fraction", "0.1", "--val-data", path("text.txt")},
         {"--val-fraction", "--val-data"});

  std::vector<std::string> rises = {"plan", "--steps", "2", "--warmup", "2"};
  append(rises, small());
  const Outcome outcome = run_program(rises);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("--warmup 2 is not shorter than --steps 2"), std::string::npos)
      << outcome.err;
}

TEST_F(BadInput, SmallestBudgetThatIsNamedWorks) {
  std::vector<std::string> arguments = train("run", small({"--steps", "1"}));
  const auto budget = std::find(arguments.begin(), arguments.end(), "--device-memory") + 1;
  *budget = "1MiB";
  const std::string message = run_program(arguments).err;
  const std::string before = "smallest that works is ";
  *budget = word_after(message, before);
  const Outcome outcome = run_program(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(BadInput, HostMemoryThatIsNamedWorksAndLessDoesNot) {
  for (const bool device_too : {true, false}) {
    std::vector<std::string> arguments = {"plan"};
    append(arguments, small({"--host-memory", "1MiB"}));
    if (device_too)
      std::ranges::replace(arguments, std::string("256MiB"), std::string("64MiB"));
    else
      arguments.erase(std::ranges::find(arguments, "--device-memory"),
                      std::ranges::find(arguments, "256MiB") + 1);
    // A device that takes more than there is, is another message.
    const auto budget = std::ranges::find(arguments, "--host-memory") + 1;
    *budget = "65MiB";
    if (!device_too) *budget = "1MiB";
    const Outcome refused = run_program(arguments);
    EXPECT_EQ(refused.exit_code, 2);
    *budget = word_after(refused.err, "--host-memory ");
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << refused.err << outcome.err;
    *budget = std::to_string(std::stoll(*budget) - 1) + "MiB";
    EXPECT_EQ(run_program(arguments).exit_code, 2) << *budget;
  }
}

TEST_F(BadInput, APlanRefusesWhatItsRunWould) {
  const auto expect_plan_refused = [&](std::vector<std::string> more,
                                       const std::vector<std::string>& words) {
    std::vector<std::string> arguments = {"plan"};
    append(arguments, small(more));
    expect_refused(arguments, words);
    more.insert(more.begin(), {"--steps", "1"});
    expect_run_refused(more, words);
  };
  write_text(path("ids.bin"), std::string(400, '\7'));
  expect_plan_refused({"--data", path("none.txt")}, {"none.txt"});
  expect_plan_refused({"--data", path("ids.bin")}, {"ids.bin", "vocabulary"});
  expect_plan_refused({"--val-data", path("ids.bin")}, {"ids.bin", "vocabulary"});
  expect_plan_refused({"--val-fraction", "1"}, {"fraction"});
  expect_plan_refused({"--val-every", "1"}, {"--val-data"});
  expect_plan_refused({"--beta1", "1"}, {"beta1"});
  expect_plan_refused({"--warmup", "3", "--schedule", "cosine", "--min-lr", "1"}, {"1"});
  expect_plan_refused({"--force", "attention=cudnn"}, {"attention=cudnn", "CPU"});

  std::vector<std::string> arguments = {"plan", "--data", path("text.txt"), "--val-fraction",
                                        "0.5"};
  append(arguments, small());
  const Outcome outcome = run_program(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find(" tokens to train on, "), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("in reserve"), std::string::npos) << outcome.out;

  // Data that can be learned, but should be looked at.
  write_text(path("latin.txt"), std::string(400, 'x') + "\xe9t\xe9");
  arguments = {"plan", "--data", path("latin.txt")};
  append(arguments, small());
  const Outcome warned = run_program(arguments);
  EXPECT_EQ(warned.exit_code, 0) << warned.err;
  EXPECT_NE(warned.err.find("latin.txt' is not UTF-8 from byte 400 on"), std::string::npos)
      << warned.err;
}

TEST_F(BadInput, KernelsOfAnotherDeviceAreRefusedBeforeMemoryIsTaken) {
  const Outcome outcome =
      run_program(train("run", small({"--force", "attention=cudnn", "--steps", "1"})));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("--force attention=cudnn"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "") << "the plan is already shown";
}

/// Memory may take minutes to get.
TEST_F(BadInput, WeightsAreLookedAtBeforeMemoryIsTaken) {
  ASSERT_EQ(run_program(train("other", small({"--steps", "2", "--save-every", "2"}))).exit_code, 0);
  const std::string weights = path("other/model/model.safetensors");
  const std::string shard = path("other/checkpoints/step_00000002/shard_00000.h5");
  for (const std::string& file : {weights, shard}) {
    fs::resize_file(file, fs::file_size(file) - 1000);
    const std::string model = fs::path(file).parent_path();
    const std::string name = fs::path(file).filename();
    for (const auto& arguments :
         {train("run", small({"--steps", "1", "--model", model})),
          std::vector<std::string>{"generate", "--model", model, "--device", "cpu", "--prompt", "x",
                                   "--host-memory", "1MiB"}}) {
      const Outcome outcome = run_program(arguments);
      EXPECT_EQ(outcome.exit_code, 2);
      EXPECT_NE(outcome.err.find(name), std::string::npos) << outcome.err;
      EXPECT_EQ(outcome.out, "") << "the plan is already shown";
    }
  }
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(BadInput, AContextLongerThanTheModelReaches) {
  expect_refused({"generate", "--model", "llama-tiny", "--device", "cpu", "--prompt", "x",
                  "--context", "100000"},
                 {"--context is 100000", "llama-tiny", "at most that many"});
}

TEST_F(BadInput, OutIsAFileOrCannotBeMade) {
  write_text(path("file"), "");
  for (const char* out : {"file", "file/x"}) {
    const Outcome outcome = run_program(train(out, small({"--steps", "1"})));
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.err.find("--out " + path(out)), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "") << "the plan is already shown";
  }
}

}  // namespace
}  // namespace megatrain::launcher
