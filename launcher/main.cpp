// The megatrain program: commands by name, errors as messages and exit codes.

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>

#include "core/base/error.h"
#include "launcher/commands/bench.h"
#include "launcher/commands/convert.h"
#include "launcher/commands/diff.h"
#include "launcher/commands/generate.h"
#include "launcher/commands/inspect.h"
#include "launcher/commands/launch.h"
#include "launcher/commands/plan.h"
#include "launcher/commands/train.h"
#include "launcher/commands/verify.h"
#include "launcher/console.h"
#include "launcher/exit_codes.h"
#include "launcher/options/command_line.h"
#include "launcher/options/run_checks.h"

namespace {

int report(const std::exception& error, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "megatrain: %s\n", error.what());
  return code;
}

/// A command that has no exit code of its own.
template <class Act>
std::function<int()> done(Act act) {
  return [act] {
    act();
    return megatrain::launcher::kDone;
  };
}

std::vector<std::string> names(const std::vector<megatrain::launcher::Command>& commands) {
  std::vector<std::string> result;
  for (const megatrain::launcher::Command& command : commands) result.push_back(command.name);
  return result;
}

void check(const megatrain::launcher::RunOptions& options) {
  for (const std::string& warning : megatrain::launcher::check_together(options))
    megatrain::launcher::Console().warning(warning);
}

int run(int argc, const char* const* argv) {
  using namespace megatrain::launcher;
  RunOptions train_options;
  RunOptions plan_options;
  GenerateOptions generate_options;
  BenchOptions bench_options;
  InspectOptions inspect_options;
  VerifyOptions verify_options;
  ConvertOptions convert_options;
  DiffOptions diff_options;
  LaunchOptions launch_options;
  const std::vector<Command> commands = {
      {"train", "Train a model and write a Hugging Face folder", train_table(train_options),
       &train_options.config,
       [&] {
         check(train_options);
         return train(train_options);
       }},
      {"plan", "Show what train would allocate and take, with the same options",
       plan_table(plan_options), &plan_options.config, done([&] {
         check(plan_options);
         plan(plan_options);
       })},
      {"generate", "Sample text from a model", generate_table(generate_options), nullptr,
       done([&] { generate(generate_options); })},
      {"bench", "Measure this machine, time training steps, and say where their time goes",
       bench_table(bench_options), nullptr, done([&] { bench(bench_options); })},
      {"inspect", "List the tensors of a checkpoint, HDF5 or safetensors file or model folder",
       inspect_table(inspect_options), nullptr, done([&] { inspect(inspect_options); })},
      {"verify", "Check that a checkpoint is whole and can be read on its own",
       verify_table(verify_options), nullptr, done([&] { verify(verify_options); })},
      {"convert", "Turn a Hugging Face folder into a checkpoint, or a checkpoint into a folder",
       convert_table(convert_options), nullptr, done([&] { convert(convert_options); })},
      {"diff", "Say where and by how much two of these differ; exit code 0: equal, 1: different",
       diff_table(diff_options), nullptr, [&] { return diff(diff_options); }},
      {"launch", "Start a command, or any program, as many ranks on this and other nodes",
       launch_table(launch_options), nullptr,
       [&] { return launch(launch_options, names(commands)); }, &launch_options.command},
  };
  const int code = run_command_line(commands, argc, argv);
  try {
    finish_output();
  } catch (const megatrain::Error& error) {
    return report(error, code == kDone ? kFailed : code);
  }
  return code;
}

/// Where one of them was closed (>&-), the next file that is opened would take its number, and what
/// is said would be written into that file. Now it fails, as it would have.
void hold_standard_streams() {
  int descriptor = 0;
  do descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  ::close(descriptor);
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_streams();
  // A file-size limit shall be an error that names the file, not a death by signal.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const megatrain::UserError& error) {
    return report(error, megatrain::launcher::kUserError);
  } catch (const std::exception& error) {
    return report(error, megatrain::launcher::kFailed);
  }
}
