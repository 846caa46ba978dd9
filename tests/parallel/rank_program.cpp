// A rank for tests: joins the rendezvous that its environment names, as a training process would,
// and then does what its arguments say:
//   rank_program meet             a barrier and a vote; prints its place
//   rank_program wait             works until the run ends for all; exit code 3, with the reason
//   rank_program stuck            rank 1 hangs under a watchdog of 300 ms, the others wait
//   rank_program vote-stop        runs until a rank has had SIGTERM; all agree and return 75
//   rank_program late GENERATION  joins as if it were of that generation
// Further words "join=MILLISECONDS", "configuration=NUMBER" change how it joins.

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "parallel/rendezvous/client.h"
#include "tests/parallel/program_environment.h"

namespace megatrain::parallel {
namespace {

using namespace std::chrono_literals;

volatile std::sig_atomic_t g_stop = 0;

int run(int argc, char** argv) {
  ProcessPlace place = detect_place(program_environment());
  RendezvousOptions options;
  options.join_limit = 60s;
  options.silence = 10s;
  const std::string act = argc > 1 ? argv[1] : "meet";
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("join=")) options.join_limit = Milliseconds(std::stoi(word.substr(5)));
    if (word.starts_with("silence=")) options.silence = Milliseconds(std::stoi(word.substr(8)));
    if (word.starts_with("configuration="))
      options.configuration = static_cast<std::uint64_t>(std::stoi(word.substr(14)));
  }
  if (act == "late") place.generation = std::stoi(argv[2]);
  if (act == "vote-stop") std::signal(SIGTERM, [](int) { g_stop = 1; });
  Rendezvous mine(place, options);
  if (act == "meet") {
    mine.barrier("all", 60s);
    std::printf("%s generation %d\n", describe(place).c_str(), place.generation);
    return mine.all("well", true, 60s) ? 0 : 1;
  }
  if (act == "vote-stop") {
    std::printf("voting\n");
    std::fflush(stdout);
    while (!mine.any("stop", g_stop != 0, 60s)) std::this_thread::sleep_for(20ms);
    std::printf("stopped together\n");
    return 75;
  }
  std::printf("ready %d\n", static_cast<int>(::getpid()));
  std::fflush(stdout);
  if (act == "stuck" && place.rank == 1) {
    mine.working_on("step 5, unit 2", 300ms);
    for (;;) ::pause();
  }
  mine.get("what nobody sets", 60s);
  return 0;
}

}  // namespace
}  // namespace megatrain::parallel

int main(int argc, char** argv) {
  try {
    return megatrain::parallel::run(argc, argv);
  } catch (const megatrain::parallel::RankLost& error) {
    std::fprintf(stderr, "lost: %s\n", error.what());
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}
