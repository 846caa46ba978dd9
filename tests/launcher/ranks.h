#pragma once
/// @file
/// A run of a second or two that several ranks share, and what it must come to.

#include <cstdlib>

#include "tests/launcher/run_test.h"
#include "tests/parallel/started.h"

namespace megatrain::launcher {

/// What another number of ranks may change: fp32 sums of the same products in another order.
inline constexpr double kLossBound = 1e-5;

class Ranks : public RunTest {
 protected:
  /// The options of a run that 1, 2, 3 and 4 ranks divide evenly.
  [[nodiscard]] std::vector<std::string> run(const std::string& out,
                                             std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments =
        train(out, small({"--threads", "1", "--batch-tokens", "384", "--steps", "6", "--warmup",
                          "2", "--device-memory", "128MiB", "--host-memory", "256MiB",
                          "--micro-batch", "1", "--val-fraction", "0.1", "--val-every", "3"}));
    append(arguments, std::move(more));
    arguments.insert(arguments.begin(), parallel::megatrain_program());
    return arguments;
  }
  /// `train`, a command from run(), as that many ranks that megatrain launch starts.
  [[nodiscard]] std::vector<std::string> launch(int ranks, std::vector<std::string> train,
                                                std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {parallel::megatrain_program(), "launch",
                                          "--nproc-per-node", std::to_string(ranks)};
    append(arguments, std::move(more));
    train.erase(train.begin());
    append(arguments, std::move(train));
    return arguments;
  }
  /// Runs it to its end.
  static void expect_done(const std::vector<std::string>& command, int code = 0,
                          const parallel::Environment& environment = {}) {
    parallel::Started program(command, environment);
    EXPECT_EQ(program.wait(), code) << program.output();
  }
  void expect_close(const std::string& a, const std::string& b) const {
    for (const char* key : {"loss", "grad_norm", "val_loss"}) {
      const auto x = series(path(a + "/metrics.jsonl"), key);
      const auto y = series(path(b + "/metrics.jsonl"), key);
      ASSERT_EQ(x.size(), y.size()) << key;
      ASSERT_FALSE(x.empty()) << key;
      for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i] / y[i], 1, kLossBound) << key;
    }
    EXPECT_EQ(series(path(a + "/metrics.jsonl"), "tokens"),
              series(path(b + "/metrics.jsonl"), "tokens"));
  }
  /// A run that a test ends.
  [[nodiscard]] std::vector<std::string> long_run(const std::string& out,
                                                  std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"--steps", "100000", "--val-every", "0"};
    append(all, std::move(more));
    return run(out, all);
  }
  /// The bits of what was trained.
  [[nodiscard]] std::string model(const std::string& run) const {
    return read_file(path(run) + "/model/model.safetensors");
  }
};

}  // namespace megatrain::launcher
