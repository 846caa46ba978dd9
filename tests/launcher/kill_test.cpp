/// @file
/// A run that is killed again and again, at any moment, ends as one that never was.

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "tests/launcher/run_test.h"

namespace megatrain::launcher {
namespace {

namespace fs = std::filesystem;

class Kill : public RunTest {};

TEST_F(Kill, AtFiftyRandomMomentsLosesNothingThatWasSaved) {
  const auto arguments = [&](const std::string& out, std::vector<std::string> more = {}) {
    // Steps of milliseconds and saves of a tenth of a second: nearly every kill meets a save.
    std::vector<std::string> all = train(out, small({"--steps", "200", "--save-every", "2"}));
    append(all, std::move(more));
    return all;
  };
  ASSERT_EQ(run_program(arguments("whole")).exit_code, 0);

  std::mt19937 random(1);
  std::uniform_int_distribution<int> delay(0, 600);
  int kills = 0;
  int resumes = 0;
  bool done = false;
  for (int tries = 0; tries < 600 && !done; ++tries) {
    // Slow saves while it is being killed; then it may end.
    const bool enough = kills >= 50;
    const auto slow = enough
                          ? std::vector<std::string>{}
                          : std::vector<std::string>{"--save-rate", "60MB", "--save-buffer", "0"};
    Program program(arguments("killed", slow));
    if (enough) {
      const Outcome outcome = program.wait();
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_EQ(outcome.err.find("damaged"), std::string::npos) << outcome.err;
      done = true;
      break;
    }
    const fs::path metrics = path("killed/metrics.jsonl");
    const auto size = [&] { return fs::exists(metrics) ? fs::file_size(metrics) : 0; };
    // It is under way when it writes a step: what comes before is start, and saves nothing.
    const auto begun = size();
    for (int waits = 0; waits < 2000 && size() == begun; ++waits)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(delay(random)));
    program.signal(SIGKILL);
    const Outcome outcome = program.wait();
    if (outcome.exit_code == 0) break;  // it was faster: the run is whole already
    ASSERT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.err;
    EXPECT_EQ(outcome.err.find("damaged"), std::string::npos) << outcome.err;
    ++kills;
    resumes += outcome.out.find("going on from step") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(kills, 50);
  EXPECT_GT(resumes, 20);
  EXPECT_TRUE(done);
  EXPECT_EQ(read_file(path("killed/model/model.safetensors")),
            read_file(path("whole/model/model.safetensors")));
  for (const char* key : {"step", "loss", "grad_norm"})
    EXPECT_EQ(series(path("killed/metrics.jsonl"), key), series(path("whole/metrics.jsonl"), key));
  EXPECT_EQ(read_file(path("killed/checkpoints/step_00000200/manifest.json")),
            read_file(path("whole/checkpoints/step_00000200/manifest.json")));
}

}  // namespace
}  // namespace megatrain::launcher
