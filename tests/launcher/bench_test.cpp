// `megatrain bench` as a user runs it, and its pieces.

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <thread>

#include "launcher/session/bench_run.h"
#include "launcher/session/measure/host_update.h"
#include "launcher/session/measure/timing.h"
#include "tests/launcher/run_test.h"

namespace megatrain::launcher {
namespace {

namespace fs = std::filesystem;

TEST(SyntheticTokens, AreAFunctionOfTheIndexAndInTheVocabulary) {
  const SyntheticTokens tokens(31, 258);
  std::vector<std::int32_t> one(32);
  std::vector<std::int32_t> again(32);
  std::vector<std::int32_t> other(32);
  const Index last = tokens.samples() - 1;
  tokens.sample(last, one);
  tokens.sample(7, other);
  tokens.sample(last, again);
  EXPECT_EQ(one, again);
  EXPECT_NE(one, other);
  std::vector<int> seen(258, 0);
  for (Index index = 0; index < 1000; ++index) {
    tokens.sample(index, one);
    for (const std::int32_t token : one) {
      ASSERT_GE(token, 0);
      ASSERT_LT(token, 258);
      ++seen[static_cast<std::size_t>(token)];
    }
  }
  EXPECT_GT(*std::ranges::min_element(seen), 0) << "all are met";
}

TEST(BenchRun, TellsTheMiddle) {
  BenchRun run;
  run.seconds = {5, 1, 3};
  EXPECT_EQ(run.median(), 3);
  run.seconds = {5, 1, 3, 2};
  EXPECT_EQ(run.median(), 2.5);
  EXPECT_EQ(run.least(), 1);
  EXPECT_EQ(run.most(), 5);
}

TEST(Timing, GivesEveryCallItsTurnAndItsOwnTime) {
  std::string order;
  bool waited = true;
  const auto call = [&](char name, int milliseconds) {
    return Repeated{.enqueue =
                        [&order, &waited, name, milliseconds] {
                          order += name;
                          waited = false;
                          std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
                        },
                    .least_seconds = 0.007};
  };
  const std::vector<double> seconds =
      seconds_of_calls(std::array{call('a', 3), call('b', 2)}, [&] { waited = true; });
  ASSERT_EQ(seconds.size(), 2u);
  EXPECT_GE(seconds[0], 0.003);
  EXPECT_GE(seconds[1], 0.002);
  EXPECT_TRUE(waited);
  EXPECT_TRUE(order.ends_with("abababababab")) << order;
}

TEST(HostUpdate, IsMeasuredBeyondTheCachesAndWithinTheMemory) {
  const Index mib = Index{1} << 20;
  EXPECT_EQ(measured_bytes(300 * mib, 2, 64000 * mib), 1200 * mib);
  EXPECT_EQ(measured_bytes(0, 2, 64000 * mib), 256 * mib) << "caches are not known";
  EXPECT_EQ(measured_bytes(0, 4000, 512000 * mib), 4096 * mib) << "takes no longer";
  EXPECT_EQ(measured_bytes(300 * mib, 16, 2000 * mib), 250 * mib);
  EXPECT_EQ(measured_bytes(300 * mib, 16, 0), 1);
}

class Bench : public RunTest {
 protected:
  static std::vector<std::string> bench(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"bench",
                                          "--model",
                                          "llama-tiny",
                                          "--seq-len",
                                          "32",
                                          "--batch-tokens",
                                          "128",
                                          "--force",
                                          "micro-batch=2",
                                          "--device",
                                          "cpu",
                                          "--compute",
                                          "fp32",
                                          "--threads",
                                          "2",
                                          "--device-memory",
                                          "256MiB"};
    append(arguments, std::move(more));
    return arguments;
  }
  static void expect_refused(std::vector<std::string> more, std::string_view because) {
    const Outcome outcome = run_program(bench(std::move(more)));
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.err.find(because), std::string::npos) << outcome.err;
  }
  static const io::JsonValue& at(const io::JsonValue& object, std::string_view key) {
    const io::JsonValue* value = object.find(key);
    if (value == nullptr) throw std::runtime_error("no " + std::string(key));
    return *value;
  }
  static double sum(const io::JsonValue& object) {
    double total = 0;
    for (const io::JsonMember& member : members(object)) total += number(object, member.name);
    return total;
  }
  static const io::JsonValue::Object& members(const io::JsonValue& object) {
    return *object.as<io::JsonValue::Object>();
  }
  static const io::JsonValue::Array& elements(const io::JsonValue& array) {
    return *array.as<io::JsonValue::Array>();
  }
};

TEST_F(Bench, MeasuresPredictsAndSaysWhereAStepWent) {
  const Outcome outcome = run_program(
      bench({"--steps", "3", "--warmup-steps", "1", "--peak", "1e12", "--json", path("bench.json"),
             "--trace", path("trace.json"), "--disk", folder_.path().string()}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part :
       {"products", "attention backward", "both at once", "AdamW on the host", "all three at once",
        "host store: ", "first touch", "step: median", "of the ceiling", "MFU",
        "predicted: ", "error ", "exposed transfer", "exposed optimizer", "recompute", "gaps"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " in\n" << outcome.out;

  const io::JsonValue json = io::parse_json(read_file(path("bench.json")), "bench.json");
  EXPECT_EQ(number(json, "step_tokens"), 128);
  EXPECT_EQ(number(json, "micro_batch_tokens"), 64);
  const io::JsonValue& ceilings = at(json, "ceilings");
  EXPECT_EQ(number(ceilings, "micro_batch_tokens"), 64);
  for (const char* rate :
       {"to_device_bytes_per_second", "to_host_bytes_per_second", "both_ways_bytes_per_second",
        "update_elements_per_second", "update_bytes_per_second", "host_read_write_bytes_per_second",
        "launch_seconds", "disk_bytes_per_second"})
    EXPECT_GT(number(ceilings, rate), 0) << rate;
  for (const char* part : {"to_device_beside", "to_host_beside", "update_beside"}) {
    EXPECT_GT(number(ceilings, part), 0) << part;
    EXPECT_LE(number(ceilings, part), 1) << part;
  }
  // fp32: masters and two moments are read and written, the gradient is read.
  const double traffic = number(ceilings, "update_bytes_per_second");
  EXPECT_NEAR(traffic, 28 * number(ceilings, "update_elements_per_second"), 1e-6 * traffic);
  EXPECT_NEAR(number(ceilings, "update_of_read_write"),
              traffic / number(ceilings, "host_read_write_bytes_per_second"), 1e-9);
  EXPECT_TRUE(elements(at(json, "pinned_to")).empty()) << "the CPU device needs all cores";
  EXPECT_GT(number(at(ceilings, "products"), "flops_per_second"), 0);
  EXPECT_GT(number(at(ceilings, "attention"), "backward_flops_per_second"), 0);
  EXPECT_GT(number(at(ceilings, "element_wise"), "bytes_per_second"), 0);

  const io::JsonValue& steps = at(json, "steps");
  const double median = number(steps, "median_seconds");
  EXPECT_EQ(elements(at(steps, "seconds")).size(), 3u) << "neither warm-up nor the traced step";
  EXPECT_LE(number(steps, "min_seconds"), median);
  EXPECT_LE(median, number(steps, "max_seconds"));
  EXPECT_NEAR(number(steps, "tokens_per_second"), 128 / median, 1e-6 * 128 / median);
  // 6 x (parameters that multiply) + 6 x layers x width x sequence.
  const double block = 192.0 * (10 * 32) + 192.0 * 192 + 3.0 * 192 * 512;
  const double per_token = 6 * (4 * block + 192.0 * 258) + 6.0 * 4 * 192 * 32;
  EXPECT_NEAR(number(json, "model_flops_per_token"), per_token, 1);
  const double speed = number(steps, "model_flops_per_second");
  EXPECT_NEAR(speed, per_token * 128 / median, 1e-6 * speed);
  EXPECT_NEAR(number(steps, "mfu"), speed / 1e12, 1e-9);
  EXPECT_NEAR(number(steps, "of_ceiling"),
              speed / number(at(ceilings, "products"), "flops_per_second"), 1e-9);
  const io::JsonValue& store = at(steps, "host_store");
  EXPECT_GT(number(store, "bytes"), 16 * number(json, "parameters")) << "and padding";
  const double touch = number(store, "touch_seconds");
  EXPECT_GT(touch, 0);
  EXPECT_NEAR(number(store, "of_touch"), 1 + number(store, "registration_seconds") / touch, 1e-6);
  const io::JsonValue& predicted = at(json, "predicted");
  EXPECT_NEAR(number(predicted, "error_percent"),
              100 * (number(predicted, "step_seconds") / median - 1), 1e-6);
  for (const io::JsonValue* where : {&at(predicted, "where"), &at(json, "traced")}) {
    EXPECT_EQ(members(at(*where, "parts")).size(), 8u);
    EXPECT_NEAR(sum(at(*where, "parts")), number(*where, "seconds"), 1e-9);
    EXPECT_GT(number(at(*where, "parts"), "products"), 0);
    EXPECT_GT(number(at(*where, "operation_seconds"), "backward"), 0);
  }

  const io::JsonValue trace = io::parse_json(read_file(path("trace.json")), "trace.json");
  std::size_t spans[2] = {0, 0};
  for (const io::JsonValue& event : elements(at(trace, "traceEvents")))
    if (event.find("dur") != nullptr) ++spans[static_cast<std::size_t>(number(event, "pid")) - 1];
  EXPECT_GT(spans[0], 50u);
  EXPECT_EQ(spans[0], spans[1]) << "the measured and the predicted step";
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 3)
      << "what is asked for is written beside the text, and nothing else";
}

TEST_F(Bench, WritesRatesForTheOtherCommands) {
  const Outcome outcome =
      run_program(bench({"--steps", "0", "--tokens", "96", "--rates", path("rates")}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("step: median"), std::string::npos) << "no step was asked for";
  EXPECT_NE(outcome.out.find("96 tokens"), std::string::npos) << outcome.out;
  EXPECT_NE(read_file(path("rates")).find("attention_backward = "), std::string::npos);
  std::vector<std::string> plan = {"plan"};
  append(plan, small());
  EXPECT_NE(run_program(plan).out.find("rates: assumed"), std::string::npos);
  append(plan, {"--rates", path("rates")});
  const Outcome planned = run_program(plan);
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_NE(planned.out.find("rates: " + path("rates")), std::string::npos) << planned.out;
}

TEST_F(Bench, RefusesBeforeItMeasures) {
  expect_refused({"--json", folder_.path().string()}, "is a folder");
  expect_refused({"--trace", path("no/trace.json")}, "does not exist");
  expect_refused({"--rates", path("no/rates")}, "does not exist");
  expect_refused({"--disk", path("no")}, "--disk");
  expect_refused({"--steps", "0", "--trace", path("trace.json")}, "--trace needs a step");
  expect_refused({"--warmup-steps", "0"}, "--warmup-steps");
  expect_refused({"--batch-tokens", "100"}, "multiple of --seq-len");
  expect_refused({"--force", "colour=blue"}, "colour");
  expect_refused({"--device-memory", "1MiB"}, "--device-memory");
  expect_refused({"--model", "nothing"}, "presets");
  expect_refused({"--data", path("text.txt")}, "--data");
  expect_refused({"--gpus", "1000"}, "--gpus is 1000, but this machine has");
}

}  // namespace
}  // namespace megatrain::launcher
