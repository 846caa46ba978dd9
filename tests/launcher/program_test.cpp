#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <set>
#include <thread>

#include "io/atomic_file.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/json.h"
#include "tests/launcher/run_test.h"

namespace megatrain::launcher {
namespace {

namespace fs = std::filesystem;

void expect_whole_model(const fs::path& model) {
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"})
    EXPECT_TRUE(fs::exists(model / file)) << file;
  EXPECT_FALSE(fs::exists(model.string() + ".megatrain.tmp"));
}

using Runs = RunTest;

TEST_F(Runs, TrainsPlansAndGenerates) {
  const Outcome outcome =
      run_program(train("run", small({"--steps", "12", "--val-fraction", "0.1", "--val-every", "5",
                                      "--warmup", "2", "--trace", path("trace.json")})));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err << outcome.out;
  EXPECT_NE(outcome.out.find("step 12/12"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("MFU"), std::string::npos);
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos) << "a bar without a terminal";

  const fs::path run = folder_ / "run";
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(run)) names.insert(entry.path().filename());
  EXPECT_EQ(names,
            (std::set<std::string>{"config.toml", "metrics.jsonl", "model", "numerics.key"}));
  expect_whole_model(run / "model");
  // Who wants the trace alone need not wait for the model.
  EXPECT_LE(fs::last_write_time(path("trace.json")),
            fs::last_write_time(run / "model" / "model.safetensors"));

  const std::vector<double> loss = series(run / "metrics.jsonl", "loss");
  ASSERT_EQ(loss.size(), 12u);
  EXPECT_NEAR(loss.front(), 5.55, 0.5) << "about log(258)";
  EXPECT_LT(loss.back(), loss.front() - 0.5);
  for (const char* key : {"step", "tokens", "grad_norm", "lr", "tokens_per_s", "host_bytes"})
    EXPECT_EQ(series(run / "metrics.jsonl", key).size(), key == std::string("step") ? 15u : 12u)
        << key;
  EXPECT_EQ(series(run / "metrics.jsonl", "tokens").back(), 12 * 128);
  EXPECT_EQ(series(run / "metrics.jsonl", "val_loss").size(), 3u) << "steps 5, 10 and the last";

  // The traced step holds the plan's instructions on their streams.
  const io::JsonValue trace = io::parse_json(read_file(path("trace.json")), "trace");
  ASSERT_NE(trace.find("traceEvents"), nullptr);
  EXPECT_GT(trace.find("traceEvents")->as<io::JsonValue::Array>()->size(), 50u);

  // A plan with the same options promises what the run took.
  std::vector<std::string> arguments = {"plan", "--json", "--val-fraction", "0.1"};
  append(arguments, small());
  const Outcome planned = run_program(arguments);
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const io::JsonValue plan = io::parse_json(planned.out, "plan");
  EXPECT_EQ(number(plan, "device_peak_bytes"),
            series(run / "metrics.jsonl", "device_bytes").front());
  EXPECT_GT(number(plan, "predicted_step_seconds"), 0);
  Index device_rows = 0;
  for (const io::JsonValue& row : *plan.find("train")->find("memory")->as<io::JsonValue::Array>())
    if (*row.find("space")->as<std::string>() == "device")
      device_rows += static_cast<Index>(number(row, "bytes"));
  EXPECT_EQ(device_rows, number(*plan.find("train"), "device_bytes")) << "rows add up to the arena";

  const std::vector<std::string> generate = {
      "generate", "--model", path("run/model"), "--prompt", "line 1",    "--tokens", "8",
      "--device", "cpu",     "--threads",       "2",        "--compute", "fp32",     "--seed",
      "4"};
  const Outcome text = run_program(generate);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("line 1")) << text.out;
  EXPECT_GT(text.out.size(), 7u);
  EXPECT_EQ(run_program(generate).out, text.out) << "the same seed writes the same text";
}

TEST_F(Runs, ResolvedConfigurationAndKeyRepeatARunBitByBit) {
  ASSERT_EQ(run_program(train("a", small({"--steps", "5", "--seed", "7"}))).exit_code, 0);
  const Outcome again = run_program({"train", "--config", path("a/config.toml"), "--key",
                                     path("a/numerics.key"), "--out", path("b")});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(series(path("a/metrics.jsonl"), "loss"), series(path("b/metrics.jsonl"), "loss"));
  EXPECT_EQ(read_file(path("a/model/model.safetensors")),
            read_file(path("b/model/model.safetensors")));
  EXPECT_EQ(read_file(path("a/numerics.key")), read_file(path("b/numerics.key")));

  // The configuration of the rerun is the same but for what the command line said.
  const auto settings = [](const std::string& text) {
    std::vector<std::string> lines = lines_of(text);
    std::erase_if(lines, [](const std::string& line) {
      return line.starts_with("out = ") || line.find("key ") != std::string::npos;
    });
    return lines;
  };
  EXPECT_EQ(settings(read_file(path("a/config.toml"))), settings(read_file(path("b/config.toml"))));

  ASSERT_EQ(
      run_program({"train", "--config", path("a/config.toml"), "--seed", "8", "--out", path("c")})
          .exit_code,
      0);
  EXPECT_NE(series(path("a/metrics.jsonl"), "loss"), series(path("c/metrics.jsonl"), "loss"))
      << "the seed has no effect";

  // What decides bits cannot change under a key.
  const Outcome refused =
      run_program({"train", "--config", path("a/config.toml"), "--key", path("a/numerics.key"),
                   "--force", "head-chunk=64", "--out", path("d")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("head-chunk"), std::string::npos) << refused.err;
  EXPECT_FALSE(fs::exists(path("d")));
}

TEST_F(Runs, ContinuesFromAFolderAndReplacesARunOnlyWhenTold) {
  ASSERT_EQ(run_program(train("run", small({"--steps", "2"}))).exit_code, 0);
  std::vector<std::string> onwards = train("run", small({"--steps", "1"}));
  const Outcome refused = run_program(onwards);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--overwrite"), std::string::npos) << refused.err;
  EXPECT_EQ(series(path("run/metrics.jsonl"), "loss").size(), 2u);

  onwards.emplace_back("--overwrite");
  ASSERT_EQ(run_program(onwards).exit_code, 0);
  EXPECT_EQ(series(path("run/metrics.jsonl"), "loss").size(), 1u);

  std::replace(onwards.begin(), onwards.end(), std::string("llama-tiny"), path("run/model"));
  const Outcome itself = run_program(onwards);
  EXPECT_EQ(itself.exit_code, 2);
  expect_whole_model(folder_ / "run" / "model");
  std::replace(onwards.begin(), onwards.end(), path("run"), path("next"));
  const Outcome next = run_program(onwards);
  ASSERT_EQ(next.exit_code, 0) << next.err;
  EXPECT_LT(series(path("next/metrics.jsonl"), "loss").front(),
            series(path("run/metrics.jsonl"), "loss").front());
}

TEST_F(Runs, ListsTakeSeveralValuesAndTheLastOfTwoSingleValuesCounts) {
  fs::copy(path("text.txt"), path("more.txt"));
  const std::vector<std::string> both = {"--data", path("text.txt"), path("more.txt")};
  std::vector<std::string> arguments = {"train", "--out", path("run"), "--steps", "7"};
  append(arguments, both);
  append(arguments, small({"--steps", "1"}));
  const Outcome outcome = run_program(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(series(path("run/metrics.jsonl"), "loss").size(), 1u);
  EXPECT_NE(read_file(path("run/config.toml")).find("text.txt\", \""), std::string::npos);
}

TEST_F(Runs, MoreThreadsThanCoresAreRemarkedOn) {
  std::vector<std::string> arguments = {"plan"};
  append(arguments, small({"--threads", "1"}));
  EXPECT_EQ(run_program(arguments).out.find("share"), std::string::npos);
  append(arguments, {"--threads", "4096"});
  const std::string out = run_program(arguments).out;
  EXPECT_NE(out.find("--threads 4096 share "), std::string::npos) << out;
}

TEST_F(Runs, HelpListsWhatCanBeForcedAndStaysNarrow) {
  const std::string help = run_program({"plan", "--help"}).out;
  std::size_t choices = 0;
  for (const std::string& line : lines_of(help)) {
    EXPECT_LE(line.size(), 120u) << line;
    for (const char* choice : {" slots=N: ", " keep=boundary|attention|all: ", " waves=N: "})
      if (line.find(choice) != std::string::npos) ++choices;
  }
  EXPECT_EQ(choices, 3u) << help;
  EXPECT_NE(help.find("a plan does not need it"), std::string::npos) << help;
}

TEST_F(Runs, GeneratesFromAPromptLongerThanTheModelReachesAndAnyNumberOfTokens) {
  const Outcome outcome = run_program({"generate", "--model", "llama-tiny", "--device", "cpu",
                                       "--prompt", std::string(5000, 'x'), "--tokens", "2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("the prompt has 5000 tokens"), std::string::npos) << outcome.err;
  // A budget that is refused shows that the context was computed without starting to write.
  const Outcome endless = run_program({"generate", "--model", "llama-tiny", "--device", "cpu",
                                       "--device-memory", "1", "--tokens", "9223372036854775807"});
  EXPECT_EQ(endless.exit_code, 2);
  EXPECT_NE(endless.err.find("smallest that works"), std::string::npos) << endless.err;
}

class Signals : public RunTest {
 protected:
  /// Starts a run that would take hours and waits for its third step.
  std::unique_ptr<Program> start(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = train("run", small({"--steps", "1000000"}));
    append(arguments, std::move(more));
    auto program = std::make_unique<Program>(arguments);
    for (int tries = 0; tries < 3000; ++tries) {
      if (lines_of(read_file(path("run/metrics.jsonl"))).size() >= 3) return program;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    throw std::runtime_error("the run does not start");
  }
};

TEST_F(Signals, TheFirstEndsAtAStepBoundaryWithTheModelSaved) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGHUP}) {
    const auto program = start();
    program->signal(signal);
    const Outcome outcome = program->wait();
    // Schedulers start a run again that they have stopped.
    const bool requeue = signal == SIGTERM || signal == SIGUSR1;
    // `train && deploy` does not go on with half a model.
    EXPECT_EQ(outcome.exit_code, requeue ? 75 : 128 + signal) << outcome.err;
    EXPECT_EQ(fs::exists(path("run/checkpoints/latest")), requeue);
    EXPECT_NE(outcome.out.find("stopped after"), std::string::npos);
    expect_whole_model(folder_ / "run" / "model");
    EXPECT_GE(series(path("run/metrics.jsonl"), "loss").size(), 3u);
    const Outcome text = run_program({"generate", "--model", path("run/model"), "--prompt", "l",
                                      "--tokens", "2", "--device", "cpu"});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    fs::remove_all(path("run"));
  }
}

TEST_F(Signals, ARunFolderThatWasRemovedIsMissed) {
  const auto program = start();
  fs::remove_all(path("run"));
  program->signal(SIGINT);
  const Outcome outcome = program->wait();
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("metrics.jsonl was removed"), std::string::npos) << outcome.err;
  expect_whole_model(folder_ / "run" / "model");
}

TEST_F(Signals, SeveralInOneMomentAreOne) {
  const auto program = start();
  // Both wait while it is stopped, and arrive together, as from a terminal that closes.
  program->signal(SIGSTOP);
  program->signal(SIGINT);
  program->signal(SIGHUP);
  program->signal(SIGCONT);
  const Outcome outcome = program->wait();
  const int code = outcome.exit_code;
  EXPECT_TRUE(code == 128 + SIGINT || code == 128 + SIGHUP) << code << ": " << outcome.err;
  expect_whole_model(folder_ / "run" / "model");
}

/// The last boundary, at which the run would have saved, is behind it then.
TEST_F(Signals, ARequestToSaveIsHeardWhileTheModelIsExported) {
  const fs::path model = path("run/model");
  bool heard = false;
  // On a busy machine it may come when all is over, or more than a second after the first.
  for (int tries = 0; tries < 20 && !heard; ++tries) {
    fs::remove_all(path("run"));
    const auto program = start();
    program->signal(SIGINT);
    for (int i = 0; i < 10'000 && !fs::exists(io::AtomicFolder::aside(model)); ++i) {
      if (fs::exists(model)) break;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    program->signal(SIGTERM);
    const Outcome outcome = program->wait();
    heard = outcome.exit_code == 75;
    EXPECT_TRUE(heard || outcome.exit_code == 128 + SIGINT || outcome.exit_code == 128 + SIGTERM)
        << outcome.exit_code << ": " << outcome.err;
    EXPECT_EQ(fs::exists(path("run/checkpoints/latest")), heard) << outcome.err;
  }
  ASSERT_TRUE(heard);
  expect_whole_model(model);
  // It is of the last step, and what the model was made from.
  const auto steps = static_cast<Index>(series(path("run/metrics.jsonl"), "loss").size());
  const fs::path saved = io::CheckpointFolder(path("run/checkpoints")).of_step(steps);
  EXPECT_EQ(run_program({"verify", saved.string()}).exit_code, 0) << saved;
  EXPECT_EQ(run_program({"diff", "--weights", saved.string(), model.string()}).exit_code, 0);
}

TEST_F(Signals, AnotherASecondLaterLeavesAtOnce) {
  // A save of twenty seconds.
  const auto program = start({"--save-every", "1000000", "--save-rate", "1MB"});
  program->signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  program->signal(SIGINT);
  const Outcome outcome = program->wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGINT) << outcome.err;
  EXPECT_FALSE(fs::exists(path("run/model")));
  EXPECT_FALSE(fs::exists(path("run/checkpoints/latest")));
}

TEST_F(Runs, AFullDiskLeavesNothingHalfWritten) {
  // Room for the metrics, not for the weights.
  const Outcome weights = run_program(train("weights", small({"--steps", "2"})), 100'000);
  EXPECT_EQ(weights.exit_code, 2) << weights.err;
  EXPECT_NE(weights.err.find("model.safetensors"), std::string::npos) << weights.err;
  EXPECT_EQ(series(path("weights/metrics.jsonl"), "loss").size(), 2u);
  EXPECT_FALSE(fs::exists(path("weights/model")));
  EXPECT_FALSE(fs::exists(path("weights/model.megatrain.tmp")));

  // Not even for the metrics: the run ends early, and no line is cut.
  const Outcome metrics = run_program(train("metrics", small({"--steps", "1000"})), 4'000);
  EXPECT_EQ(metrics.exit_code, 2) << metrics.err;
  const std::size_t steps = series(path("metrics/metrics.jsonl"), "loss").size();
  EXPECT_GT(steps, 2u);
  EXPECT_LT(steps, 100u);
  // What ended it comes first, then what became of the model.
  const auto cause = metrics.err.find("metrics.jsonl");
  EXPECT_NE(cause, std::string::npos) << metrics.err;
  EXPECT_GT(metrics.err.find("model.safetensors"), cause) << metrics.err;
  EXPECT_NE(metrics.err.find("model.safetensors"), std::string::npos) << metrics.err;
  EXPECT_NE(metrics.out.find("the model could not be saved"), std::string::npos) << metrics.out;
  EXPECT_FALSE(fs::exists(path("metrics/model")));
}

/// What is said must not end in a file that was opened where an output had been closed.
TEST_F(Runs, ClosedOutputsAreNoPlaceForFiles) {
  std::string command = "exec " + program_path();
  for (const std::string& argument : train("run", small({"--steps", "4", "--warmup", "1"})))
    command += " " + argument;
  EXPECT_NE(std::system((command + " <&- >&- 2>&-").c_str()), 0) << "nobody heard it";
  EXPECT_EQ(series(path("run/metrics.jsonl"), "step"), (std::vector<double>{1, 2, 3, 4}));
}

TEST_F(Runs, PlansForAGpuThatIsNotHere) {
  const std::vector<std::string> arguments = {
      "plan",           "--json", "--model",  "qwen2.5-7b", "--seq-len",       "4096",
      "--batch-tokens", "65536",  "--device", "cuda",       "--device-memory", "40GiB"};
  const Outcome outcome = run_program(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const io::JsonValue plan = io::parse_json(outcome.out, "plan");
  EXPECT_LE(number(plan, "device_peak_bytes"), 40.0 * (1 << 30));
  EXPECT_GT(number(plan, "store_bytes"), 14 * 7.6e9);
  EXPECT_EQ(*plan.find("compute")->as<std::string>(), "bf16");
  EXPECT_EQ(*plan.find("moments")->as<std::string>(), "fp32");

  std::vector<std::string> lean = arguments;
  append(lean, {"--moments", "bf16"});
  const io::JsonValue leaner = io::parse_json(run_program(lean).out, "plan");
  EXPECT_EQ(*leaner.find("moments")->as<std::string>(), "bf16");
  EXPECT_NEAR(number(leaner, "store_bytes") / number(plan, "store_bytes"), 10.0 / 14, 1e-6);
  EXPECT_NEAR(number(*leaner.find("save"), "bytes") / number(*plan.find("save"), "bytes"), 8.0 / 12,
              1e-9);

  append(lean, {"--masters", "bf16"});
  const io::JsonValue leanest = io::parse_json(run_program(lean).out, "plan");
  EXPECT_EQ(*leanest.find("masters")->as<std::string>(), "bf16");
  EXPECT_NEAR(number(leanest, "store_bytes") / number(plan, "store_bytes"), 8.0 / 14, 1e-6);

  std::vector<std::string> small_host = arguments;
  append(small_host, {"--host-memory", "64GiB"});
  const Outcome refused = run_program(small_host);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("64.00 GiB"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace megatrain::launcher
