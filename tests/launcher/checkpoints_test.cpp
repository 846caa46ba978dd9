#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "tests/launcher/run_test.h"

namespace megatrain::launcher {
namespace {

namespace fs = std::filesystem;

/// Every file below a folder.
std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
  return files;
}

void flip_bit(const fs::path& file, std::size_t at) {
  std::string content = read_file(file);
  content.at(at) = static_cast<char>(content.at(at) ^ 4);
  write_text(file, content);
}

class Checkpoints : public RunTest {
 protected:
  static constexpr const char* kLast = "checkpoints/step_00000012";
  static constexpr const char* kBefore = "checkpoints/step_00000008";

  [[nodiscard]] std::vector<std::string> run(const std::string& out,
                                             std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments =
        train(out, small({"--steps", "12", "--save-every", "4", "--warmup", "5", "--shard-size",
                          "4MiB", "--val-fraction", "0.1", "--val-every", "3"}));
    append(arguments, std::move(more));
    return arguments;
  }
  Outcome expect_done(const std::vector<std::string>& arguments) {
    Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err << outcome.out;
    return outcome;
  }
  /// Runs it with a disk of that size at "disk", in a name space where that is allowed; then a
  /// shell's `after`, which must succeed. nullopt: nothing can be mounted here.
  std::optional<Outcome> run_on_disk(const std::string& size,
                                     const std::vector<std::string>& arguments,
                                     const std::string& after, const std::string& before = "true") {
    fs::create_directories(path("disk"));
    const std::string mount = "unshare -rm sh -c 'mount -t tmpfs -o size=" + size + " none " +
                              path("disk") + " && " + before + " && { ";
    if (std::system((mount + "true; }' 2> /dev/null").c_str()) != 0) return std::nullopt;
    std::string command = program_path();
    for (const std::string& argument : arguments) command += " " + argument;
    const std::string script = mount + command + " > " + path("out") + " 2> " + path("err") +
                               "; echo $? > " + path("code") + "; " + after + "; }'";
    EXPECT_EQ(std::system(script.c_str()), 0) << after;
    return Outcome{std::stoi(read_file(path("code"))), read_file(path("out")),
                   read_file(path("err"))};
  }
  void expect_same_run(const std::string& a, const std::string& b) {
    EXPECT_TRUE(files_in(path(a) + "/model") == files_in(path(b) + "/model"));
    EXPECT_TRUE(files_in(path(a + "/" + kLast)) == files_in(path(b + "/" + kLast)));
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "val_loss"})
      EXPECT_EQ(series(path(a + "/metrics.jsonl"), key), series(path(b + "/metrics.jsonl"), key))
          << key;
  }
};

/// A process that is killed between publishing a checkpoint and naming it leaves the name behind.
TEST_F(Checkpoints, TheNameOfTheLatestIsMended) {
  expect_done(run("a"));
  const std::string right = read_file(path("a/checkpoints/latest"));
  write_text(path("a/checkpoints/latest"), "step_00000004\n");
  expect_done(run("a"));
  EXPECT_EQ(read_file(path("a/checkpoints/latest")), right);
}

TEST_F(Checkpoints, TheSameCommandGoesOnAndEndsTheSame) {
  expect_done(run("a"));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path("a/checkpoints")))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"latest", "step_00000008", "step_00000012"}));
  EXPECT_EQ(read_file(path("a/checkpoints/latest")), "step_00000012\n");

  // As if it had been ended between the last checkpoint but one and the next.
  fs::copy(path("a"), path("b"), fs::copy_options::recursive);
  fs::remove_all(path(std::string("b/") + kLast));
  const Outcome resumed = expect_done(run("b"));
  EXPECT_NE(resumed.out.find("going on from step 8"), std::string::npos) << resumed.out;
  expect_same_run("a", "b");

  // Once more: nothing is left to do, and nothing changes.
  const auto before = files_in(path("b/checkpoints"));
  expect_done(run("b"));
  EXPECT_TRUE(files_in(path("b/checkpoints")) == before);
  expect_same_run("a", "b");
}

TEST_F(Checkpoints, ASchedulersSignalSavesAndTheSameCommandEndsTheRun) {
  expect_done(run("a", {"--steps", "300", "--save-every", "0", "--val-every", "0"}));
  const auto arguments = run("b", {"--steps", "300", "--save-every", "0", "--val-every", "0"});
  Program program(arguments);
  for (int i = 0; i < 10'000 && lines_of(read_file(path("b/metrics.jsonl"))).size() < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  program.signal(SIGUSR1);
  const Outcome stopped = program.wait();
  ASSERT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_LT(series(path("b/metrics.jsonl"), "loss").size(), 300U);
  expect_done(arguments);
  EXPECT_EQ(series(path("a/metrics.jsonl"), "loss"), series(path("b/metrics.jsonl"), "loss"));
  EXPECT_TRUE(files_in(path("a/model")) == files_in(path("b/model")));
}

TEST_F(Checkpoints, DamagedOnesArePassedOverWithTheReason) {
  expect_done(run("a"));
  for (const auto& [file, at] : std::map<std::string, std::size_t>{
           {"shard_00001.h5", 100'000}, {"shard_00000.h5", 20}, {"manifest.json", 40}}) {
    SCOPED_TRACE(file);
    fs::remove_all(path("b"));
    fs::copy(path("a"), path("b"), fs::copy_options::recursive);
    flip_bit(path(std::string("b/") + kLast + "/" + file), at);
    const Outcome outcome = expect_done(run("b"));
    EXPECT_NE(outcome.err.find("damaged"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(file), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.out.find("going on from step 8"), std::string::npos) << outcome.out;
    expect_same_run("a", "b");
  }
  flip_bit(path(std::string("a/") + kLast + "/manifest.json"), 50);
  flip_bit(path(std::string("a/") + kBefore + "/manifest.json"), 50);
  const Outcome none = run_program(run("a"));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("every checkpoint"), std::string::npos) << none.err;
}

TEST_F(Checkpoints, OneWithoutItsMarkerIsPassedOverWithTheReason) {
  expect_done(run("a"));
  fs::copy(path("a"), path("b"), fs::copy_options::recursive);
  fs::remove(path(std::string("b/") + kLast + "/COMPLETE"));
  const Outcome outcome = expect_done(run("b"));
  EXPECT_NE(outcome.err.find(path(std::string("b/") + kLast) + " has no COMPLETE"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.out.find("going on from step 8"), std::string::npos) << outcome.out;
  expect_same_run("a", "b");
  // An older one is no matter.
  fs::remove(path(std::string("b/") + kBefore + "/COMPLETE"));
  EXPECT_EQ(expect_done(run("b")).err, "");
}

TEST_F(Checkpoints, ChangedOptionsAreRefusedUnlessAcceptedByName) {
  expect_done(run("a"));
  const Outcome refused = run_program(run("a", {"--lr", "1e-3", "--steps", "13"}));
  EXPECT_EQ(refused.exit_code, 2);
  for (const char* part : {"lr: 0.003 in the checkpoint, 0.001 now", "steps: 12", "13 now",
                           "--accept-change steps --accept-change lr"})
    EXPECT_NE(refused.err.find(part), std::string::npos) << part << refused.err;
  const Outcome accepted = expect_done(run(
      "a", {"--lr", "1e-3", "--steps", "13", "--accept-change", "lr", "--accept-change", "steps"}));
  EXPECT_NE(accepted.err.find("lr: 0.003"), std::string::npos) << accepted.err;
  EXPECT_EQ(series(path("a/metrics.jsonl"), "loss").size(), 13U);
  // The change is what counts from now on.
  expect_done(run("a", {"--lr", "1e-3", "--steps", "13"}));

  const Outcome unknown = run_program(run("a", {"--accept-change", "threads"}));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("threads"), std::string::npos);

  const Outcome bits =
      run_program(run("a", {"--lr", "1e-3", "--steps", "13", "--force", "head-chunk=64"}));
  EXPECT_EQ(bits.exit_code, 2);
  for (const std::string& part :
       {path("a/checkpoints/step_00000013"), std::string("head-chunk: "),
        std::string(" there, 64 here"), std::string("--accept-change numerics")})
    EXPECT_NE(bits.err.find(part), std::string::npos) << part << bits.err;
  expect_done(run("a", {"--lr", "1e-3", "--steps", "13", "--force", "head-chunk=64",
                        "--accept-change", "numerics"}));

  const Outcome other = run_program(run("a", {"--model", "qwen2-tiny"}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("another model"), std::string::npos) << other.err;
  // Other text under the same name.
  std::string text = read_file(path("text.txt"));
  text[1000] = 'X';
  write_text(path("text.txt"), "a line in front\n" + text);
  const Outcome data = run_program(run("a", {"--lr", "1e-3", "--steps", "13"}));
  EXPECT_EQ(data.exit_code, 2);
  EXPECT_NE(data.err.find("data-content"), std::string::npos) << data.err;
}

TEST_F(Checkpoints, AnAcceptedChangeOfNothingIsSaid) {
  const std::vector<std::string> accepts = {"--accept-change", "lr", "--accept-change", "numerics"};
  const Outcome anew = expect_done(run("a", accepts));
  EXPECT_NE(anew.err.find("--accept-change lr, numerics has no effect: " + path("a")),
            std::string::npos)
      << anew.err;
  // The same command again has something to go on from.
  const Outcome again = expect_done(run("a", accepts));
  EXPECT_EQ(again.err.find("no effect"), std::string::npos) << again.err;
}

/// By the option that has states kept in bf16.
class StateFormats : public Checkpoints, public ::testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(States, StateFormats, ::testing::Values("moments", "masters"),
                         [](const auto& test) { return test.param; });

/// The same exact resumption as in fp32, and no way from one to the other unasked.
TEST_P(StateFormats, InBf16GoOnExactlyAndAreChangedOnlyByName) {
  const std::string& option = GetParam();
  const auto in_bf16 = [&](const std::string& out, std::vector<std::string> more = {}) {
    append(more, {"--compute", "bf16"});
    return run(out, std::move(more));
  };
  const std::vector<std::string> bf16 = {"--" + option, "bf16"};
  const Outcome first = expect_done(in_bf16("a", bf16));
  EXPECT_NE(first.out.find(option + " in bf16"), std::string::npos) << first.out;
  EXPECT_NE(read_file(path("a/numerics.key")).find(option + " = bf16"), std::string::npos);
  fs::copy(path("a"), path("b"), fs::copy_options::recursive);
  fs::remove_all(path(std::string("b/") + kLast));
  EXPECT_NE(expect_done(in_bf16("b", bf16)).out.find("going on from step 8"), std::string::npos);
  expect_same_run("a", "b");
  EXPECT_EQ(run_program({"verify", path(std::string("a/") + kLast)}).exit_code, 0);

  expect_done(in_bf16("wide"));
  const auto bytes = [&](const std::string& folder) {
    std::uintmax_t all = 0;
    for (const auto& entry : fs::directory_iterator(path(folder + "/" + kLast)))
      if (entry.path().filename().string().starts_with("shard_")) all += entry.file_size();
    return static_cast<double>(all);
  };
  // Of 12 bytes; masters are fp32 in files.
  EXPECT_NEAR(bytes("a") / bytes("wide"), option == "moments" ? 8.0 / 12 : 1, 0.05);
  // 12 steps of it learn what they learn in fp32.
  const auto loss = series(path("a/metrics.jsonl"), "loss");
  const auto wide_loss = series(path("wide/metrics.jsonl"), "loss");
  EXPECT_EQ(loss.front(), wide_loss.front());
  EXPECT_NE(loss.back(), wide_loss.back()) << "the option has no effect";
  EXPECT_NEAR(loss.back() / wide_loss.back(), 1, 0.05);

  for (const auto& [folder, now] : {std::pair("a", "fp32"), std::pair("wide", "bf16")}) {
    const std::vector<std::string> other = {"--" + option, now, "--steps", "12"};
    const Outcome refused = run_program(in_bf16(folder, other));
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("--accept-change " + option), std::string::npos) << refused.err;
    std::vector<std::string> accepts = other;
    append(accepts, {"--accept-change", option, "--steps", "14", "--accept-change", "steps"});
    const Outcome accepted = expect_done(in_bf16(folder, accepts));
    EXPECT_NE(accepted.err.find("accepted: " + option), std::string::npos) << accepted.err;
    const std::string kept = option == "masters" && now == std::string("fp32") ? "split fp32" : now;
    EXPECT_NE(accepted.out.find(option + " in " + kept), std::string::npos) << accepted.out;
    EXPECT_EQ(series(path(std::string(folder) + "/metrics.jsonl"), "loss").size(), 14U);
    // From here on it is as it is now.
    expect_done(in_bf16(folder, {"--" + option, now, "--steps", "14"}));
  }
  // With all other bits accepted too, the states still are not.
  fs::remove_all(path("b/checkpoints/step_00000012"));
  EXPECT_EQ(run_program(in_bf16("b", {"--accept-change", "numerics"})).exit_code, 2);
}

TEST_F(Checkpoints, MastersInBf16AreNotThoseOfARunThatStreamsFp32) {
  const Outcome refused = run_program(run("a", {"--masters", "bf16", "--compute", "fp32"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--compute bf16"), std::string::npos) << refused.err;
}

/// Checkpoints that were written before there was a choice have states in fp32.
TEST_F(Checkpoints, OneThatDoesNotRecordFormatsGoesOnInFp32) {
  expect_done(run("a"));
  const std::string folder = path(std::string("a/") + kLast);
  std::string record = read_file(folder + "/training.json");
  for (const std::string part : {R"("moments": "fp32")", R"(moments = fp32\n)",
                                 R"("masters": "fp32")", R"(masters = fp32\n)"}) {
    const auto at = record.find(part);
    ASSERT_NE(at, std::string::npos) << part << " in " << record;
    record.erase(at, part.size());
    if (part.front() == '"') record.erase(record.rfind(',', at), 1);
  }
  write_text(folder + "/training.json", record);
  const Outcome sealed = run_program({"verify", folder, "--reseal"});
  ASSERT_EQ(sealed.exit_code, 0) << sealed.err << record;
  const Outcome resumed = expect_done(
      run("a", {"--steps", "13", "--accept-change", "steps", "--accept-change", "moments"}));
  EXPECT_NE(resumed.out.find("going on from step 12"), std::string::npos);
  EXPECT_EQ(resumed.err.find("accepted: moments"), std::string::npos) << resumed.err;
}

/// A run that was stopped before an evaluation has it done by the next, which may be killed after
/// it.
TEST_F(Checkpoints, AnEvaluationThatIsDoneAgainHasOneLine) {
  expect_done(run("a"));
  const std::string folder = path(std::string("a/") + kLast);
  std::string record = read_file(folder + "/training.json");
  const std::string part = R"("evaluation_due": )";
  const auto at = record.find(part + "false");
  ASSERT_NE(at, std::string::npos) << record;
  write_text(folder + "/training.json", record.replace(at, part.size() + 5, part + "true"));
  ASSERT_EQ(run_program({"verify", folder, "--reseal"}).exit_code, 0);
  const std::string before = read_file(path("a/metrics.jsonl"));
  for (int i = 0; i < 2; ++i) {
    const Outcome resumed = expect_done(run("a"));
    EXPECT_NE(resumed.out.find("step 12  held-out loss"), std::string::npos) << resumed.out;
    EXPECT_EQ(read_file(path("a/metrics.jsonl")), before);
  }
  // Who has no held-out data any more does not lose it.
  expect_done(run("a", {"--val-fraction", "0", "--val-every", "0", "--accept-change",
                        "val-fraction", "--accept-change", "data-content"}));
  EXPECT_EQ(read_file(path("a/metrics.jsonl")), before);
}

TEST_F(Checkpoints, FewerStepsThanAreDoneAreRefusedBeforeMemoryIsTaken) {
  expect_done(run("a"));
  const Outcome refused = run_program(run("a", {"--steps", "7", "--accept-change", "steps"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("beyond --steps 7"), std::string::npos) << refused.err;
  EXPECT_EQ(refused.out, "") << "the plan is already shown";
}

TEST_F(Checkpoints, AnotherFolderGoesOnFromANamedOne) {
  expect_done(run("a"));
  const auto before = files_in(path("a"));
  const std::string from = path(std::string("a/") + kBefore);
  expect_done(run("b", {"--resume", from}));
  EXPECT_EQ(series(path("b/metrics.jsonl"), "loss").size(), 4U) << "steps 9 to 12";
  EXPECT_TRUE(files_in(path("a")) == before);
  EXPECT_TRUE(files_in(path("a/model")) == files_in(path("b/model")));

  // A run that is there is neither gone on with nor replaced unasked.
  EXPECT_EQ(run_program(run("a", {"--resume", "none"})).exit_code, 2);
  EXPECT_EQ(run_program(run("a", {"--resume", from, "--overwrite"})).exit_code, 2);
  EXPECT_EQ(run_program(run("c", {"--resume", path("a")})).exit_code, 2);
  EXPECT_TRUE(files_in(path("a")) == before);
  // Its weights alone begin a new run.
  expect_done(run("d", {"--model", from}));
  EXPECT_LT(series(path("d/metrics.jsonl"), "loss").front(),
            series(path("a/metrics.jsonl"), "loss").front() - 0.5);

  const Outcome anew = expect_done(run("a", {"--overwrite", "--steps", "3"}));
  EXPECT_EQ(anew.out.find("going on"), std::string::npos);
  EXPECT_EQ(series(path("a/metrics.jsonl"), "loss").size(), 3U);
  EXPECT_FALSE(fs::exists(path(std::string("a/") + kLast)));
}

TEST_F(Checkpoints, AFullDiskStopsTrainingOnlyWhenAsked) {
  // Room for the model and not for a shard.
  constexpr Index kLimit = 12'000'000;
  const std::vector<std::string> one_shard = {"--shard-size", "1GiB"};
  const Outcome goes_on = run_program(run("a", one_shard), kLimit);
  EXPECT_EQ(goes_on.exit_code, 2) << goes_on.err;
  EXPECT_NE(goes_on.err.find("could not be saved; training goes on"), std::string::npos)
      << goes_on.err;
  EXPECT_EQ(series(path("a/metrics.jsonl"), "loss").size(), 12U);
  EXPECT_TRUE(fs::exists(path("a/model/model.safetensors")));

  std::vector<std::string> stops = one_shard;
  append(stops, {"--save-failure", "stop"});
  const Outcome stopped = run_program(run("b", stops), kLimit);
  EXPECT_EQ(stopped.exit_code, 2) << stopped.err;
  EXPECT_EQ(series(path("b/metrics.jsonl"), "loss").size(), 4U) << "the step that was to be saved";
  for (const char* out : {"a", "b"})
    for (const auto& entry : fs::directory_iterator(path(out) + "/checkpoints"))
      ADD_FAILURE() << "left behind: " << entry.path();
}

TEST_F(Checkpoints, ARunThatDiedBeforeItSavedBeginsAnew) {
  expect_done(run("a"));
  fs::create_directories(path("b"));
  write_text(path("b/metrics.jsonl"), "{\"step\":1,\"loss\":7.0}\n");
  write_text(path("b/config.toml"), "");
  expect_done(run("b"));
  expect_same_run("a", "b");
}

TEST_F(Checkpoints, WhatCannotBeSeenIsNotTakenForNothing) {
  expect_done(run("a"));
  fs::remove_all(path("a/model"));
  fs::rename(path("a/checkpoints"), path("elsewhere"));
  fs::create_symlink(path("not_mounted"), path("a/checkpoints"));
  const auto before = files_in(path("a"));
  EXPECT_EQ(run_program(run("a")).exit_code, 2);
  EXPECT_TRUE(files_in(path("a")) == before);
  // On another disk, through a link, it is a run like any other.
  fs::remove(path("a/checkpoints"));
  fs::create_symlink(path("elsewhere"), path("a/checkpoints"));
  EXPECT_NE(expect_done(run("a")).out.find("going on from step 12"), std::string::npos);
  // Checkpoints that lost their markers are nobody's to remove.
  fs::remove(path("a/checkpoints"));
  fs::remove_all(path("a/model"));
  fs::rename(path("elsewhere"), path("a/checkpoints"));
  for (const char* step : {kLast, kBefore})
    fs::remove(path(std::string("a/") + step + "/COMPLETE"));
  EXPECT_EQ(run_program(run("a")).exit_code, 2);
  EXPECT_TRUE(fs::exists(path(std::string("a/") + kLast + "/manifest.json")));
}

TEST_F(Checkpoints, HistoriesDoNotMixAndNamesDoNotLie) {
  expect_done(run("a"));
  const Outcome older = run_program(run("a", {"--resume", path(std::string("a/") + kBefore)}));
  EXPECT_EQ(older.exit_code, 2);
  EXPECT_NE(older.err.find("later checkpoints"), std::string::npos) << older.err;
  fs::rename(path(std::string("a/") + kBefore), path("a/checkpoints/step_00000099"));
  const Outcome renamed = expect_done(run("a"));
  EXPECT_NE(renamed.err.find("another's name"), std::string::npos) << renamed.err;
  EXPECT_NE(renamed.out.find("going on from step 12"), std::string::npos) << renamed.out;
}

TEST_F(Checkpoints, TheViewMayGo) {
  expect_done(run("a"));
  fs::remove(path(std::string("a/") + kLast + "/all.h5"));
  EXPECT_NE(expect_done(run("a")).out.find("going on from step 12"), std::string::npos);
  EXPECT_EQ(run_program({"verify", path(std::string("a/") + kLast)}).exit_code, 0);
}

TEST_F(Checkpoints, TwoRunsNeverShareAFolder) {
  Program first(run("a", {"--steps", "100000", "--save-every", "50000"}));
  for (int i = 0; i < 10'000 && lines_of(read_file(path("a/metrics.jsonl"))).size() < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const Outcome second = run_program(run("a", {"--steps", "100000", "--save-every", "50000"}));
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_NE(second.err.find("another run is at work"), std::string::npos) << second.err;
  EXPECT_EQ(second.err.find("begins anew"), std::string::npos) << second.err;
  EXPECT_EQ(second.out, "") << "it has begun to take memory";
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait().exit_code, 75);
}

TEST_F(Checkpoints, ADiskWithRoomForOneKeepsIt) {
  const auto ended =
      run_on_disk("36m", run("disk/a", {"--shard-size", "1GiB"}),
                  "ls " + path("disk/a/checkpoints") + " > " + path("names") + "; " +
                      program_path() + " verify " + path("disk/a/checkpoints/step_00000004"));
  if (!ended) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(ended->exit_code, 2);
  EXPECT_EQ(read_file(path("names")), "latest\nstep_00000004\n");
  EXPECT_NE(ended->err.find("No space left"), std::string::npos) << ended->err;
  EXPECT_NE(ended->err.find("training goes on"), std::string::npos) << ended->err;
  EXPECT_NE(ended->out.find("done after 12 of 12"), std::string::npos);
}

TEST_F(Checkpoints, ADiskWithRoomForNoneIsRefusedBeforeMemoryIsTaken) {
  const auto refused = run_on_disk("16m", run("disk/a"), "test ! -e " + path("disk/a"));
  if (!refused) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(refused->exit_code, 2);
  for (const std::string& part :
       {path("disk/a"), std::string("19.15 MiB"), std::string("16.00 MiB"), std::string("--out"),
        std::string("--save-every 0")})
    EXPECT_NE(refused->err.find(part), std::string::npos) << part << refused->err;
  EXPECT_EQ(refused->out, "") << "the plan is already shown";
  const auto saves_none = run_on_disk("16m", run("disk/a", {"--save-every", "0"}), "true");
  EXPECT_EQ(saves_none->exit_code, 0) << saves_none->err;
}

/// What goes when the run begins is no reason to refuse it.
TEST_F(Checkpoints, ADiskThatAnEarlierRunFillsHasRoomForTheNext) {
  const std::string leave = "mkdir -p " + path("disk/a/checkpoints/step_00000004.megatrain.tmp") +
                            " && head -c 20000000 /dev/zero > " +
                            path("disk/a/checkpoints/step_00000004.megatrain.tmp/shard_00000.h5");
  const auto anew =
      run_on_disk("36m", run("disk/a", {"--save-every", "12", "--steps", "12"}), "true", leave);
  if (!anew) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(anew->exit_code, 0) << anew->err;
}

TEST_F(Checkpoints, OfEverySoManyStepsStay) {
  expect_done(run("a", {"--save-every", "2", "--keep-last", "1", "--keep-every", "6",
                        "--save-buffer", "0", "--verify-saves"}));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path("a/checkpoints")))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"latest", "step_00000006", "step_00000012"}));
}

}  // namespace
}  // namespace megatrain::launcher
