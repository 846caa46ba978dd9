// One process of a group over Gloo, for gloo_process_test.
//   gloo_child FOLDER RANK SIZE TIMEOUT-MS SCENARIO VICTIM
// Prints what it found; exit code 0, or 3 with the message of a PeerError.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/device/device.h"
#include "parallel/gloo/gloo_transport.h"
#include "tests/parallel/gloo_rounds.h"
#include "tests/parallel/rank_main.h"
#include "tests/parallel/stores.h"

namespace {

using namespace megatrain;

int run(const megatrain::testing::RankArguments& arguments) {
  const auto& [folder, rank, size, timeout, scenario, victim] = arguments;
  if (victim && scenario == "absent") return 0;

  const auto device = make_cpu_device({.threads = 1});
  const auto communicator =
      make_gloo_transport({.address = "127.0.0.1", .timeout = timeout})
          ->connect(std::make_shared<FolderStore>(folder), "data", rank, size);
  const auto stream = device->make_stream("collectives");
  const auto act = [&](int round) {
    if (!victim || round != 3) return;
    if (scenario == "kill") std::raise(SIGKILL);
    if (scenario == "stop") std::raise(SIGSTOP);
    if (scenario == "abort") communicator->abort("the data ended");
  };
  fmt::print("{:016x}\n", testing_rounds(*communicator, *stream, act));
  communicator->barrier(timeout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return megatrain::testing::rank_main(argc, argv, run); }
