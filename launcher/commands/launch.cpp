#include "launcher/commands/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <numeric>
#include <thread>

#include "io/file.h"
#include "launcher/console.h"
#include "launcher/exit_codes.h"
#include "launcher/process/agents.h"
#include "launcher/process/environment.h"
#include "launcher/process/guard.h"
#include "launcher/process/rank_group.h"
#include "launcher/process/signal_queue.h"
#include "launcher/process/supervisor.h"
#include "parallel/rendezvous/node_place.h"
#include "parallel/rendezvous/server.h"
#include "parallel/rendezvous/socket.h"

namespace megatrain::launcher {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLongestPause{30};
/// Where the ranks of a single node meet, whatever is said of nodes: it is served nowhere else.
constexpr const char* kOnlyHere = "127.0.0.1";

parallel::NodeOverrides overrides_of(const LaunchOptions& options) {
  const auto number = [](const std::optional<Index>& value) {
    return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
  };
  return {.node = number(options.node_rank),
          .nodes = number(options.nnodes),
          .rendezvous = options.rendezvous,
          .run_id = options.run_id};
}

/// Of this node alone, a name that no other run has; of several, the same on each.
std::string run_id_of(const parallel::NodePlace& node) {
  if (!node.run_id.empty()) return node.run_id;
  if (node.nodes > 1) return "run";
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("run-{:x}-{:x}",
                     std::chrono::duration_cast<std::chrono::milliseconds>(now).count(),
                     ::getpid());
}

/// Refuses a meeting place that cannot be one, before anybody waits there.
void check_meeting_place(const LaunchOptions& options, const parallel::Environment& environment,
                         const parallel::NodePlace& node) {
  const parallel::Variables variables(environment);
  const auto own = variables.text("MEGATRAIN_RENDEZVOUS");
  if (!options.rendezvous && !own) return;
  // A cluster's names come up with the pods: nodes wait for them.
  if (node.nodes > 1 && variables.has("KUBERNETES_SERVICE_HOST")) return;
  const std::string where =
      options.rendezvous ? "--rendezvous " + *options.rendezvous : "MEGATRAIN_RENDEZVOUS=" + *own;
  bool here = false;
  try {
    here = parallel::is_here(node.rendezvous.host);
  } catch (const UserError& error) {
    throw UserError(Error::with_context(where, error.what()));
  }
  if (node.nodes == 1 && !here)
    throw UserError(
        fmt::format("{}: '{}' is no address of this machine, which is the only node; leave it out, "
                    "or say with --nnodes and --node-rank that there are others",
                    where, node.rendezvous.host));
}

RankProgram program_of(const LaunchOptions& options, const std::vector<std::string>& own_commands,
                       parallel::Environment environment) {
  const std::vector<std::string>& command = options.command;
  if (command.empty())
    throw UserError(
        "megatrain launch needs a command, for example: megatrain launch --nproc-per-node 4 train "
        "--config run.toml");
  if (command.front().starts_with('-'))
    throw UserError(
        fmt::format("megatrain launch does not know the option {}; see megatrain launch --help",
                    command.front()));
  if (command.front() == "launch") throw UserError("megatrain launch cannot launch itself");
  RankProgram program{.file = {}, .arguments = command, .environment = std::move(environment)};
  if (std::ranges::find(own_commands, command.front()) != own_commands.end()) {
    if (command.front() != "train")
      throw UserError(
          fmt::format("megatrain {} is one process: every rank would do all of it again. Of "
                      "megatrain's own commands only train shares its work; run it without launch",
                      command.front()));
    program.file = "/proc/self/exe";
    program.arguments.insert(program.arguments.begin(), "megatrain");
  } else {
    program.file = find_program(command.front(), program.environment);
  }
  return program;
}

/// What all ranks of this node have in common, and the first of them.
struct Ranks {
  int first = 0, world = 1, count = 1;
};

Ranks ranks_of(const std::vector<std::string>& counts, int node) {
  Ranks ranks;
  std::vector<int> numbers;
  for (const std::string& text : counts) {
    int number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    numbers.push_back(number);
  }
  const auto here = numbers.begin() + node;
  ranks.first = std::accumulate(numbers.begin(), here, 0);
  ranks.world = std::accumulate(here, numbers.end(), ranks.first);
  ranks.count = *here;
  return ranks;
}

std::vector<parallel::ProcessPlace> places_of(const parallel::NodePlace& node, const Ranks& ranks,
                                              int generation, std::uint16_t port) {
  std::vector<parallel::ProcessPlace> places;
  for (int local = 0; local < ranks.count; ++local) {
    parallel::ProcessPlace place;
    place.rank = ranks.first + local;
    place.world = ranks.world;
    place.local_rank = local;
    place.local_size = ranks.count;
    place.node = node.node;
    place.nodes = node.nodes;
    place.generation = generation;
    place.run_id = run_id_of(node);
    place.rendezvous = {node.nodes == 1 ? kOnlyHere : node.rendezvous.host, port};
    place.served = true;
    place.source = parallel::PlaceSource::own;
    places.push_back(std::move(place));
  }
  return places;
}

void print_places(Console& console, const std::vector<parallel::ProcessPlace>& places,
                  const RankProgram& program) {
  for (const parallel::ProcessPlace& place : places) {
    std::string text = fmt::format("[rank{}]", place.rank);
    for (const auto& [name, value] : own_environment(place))
      text += fmt::format(" {}={}", name, value);
    console.line(fmt::format("{} {}", text, fmt::join(program.arguments, " ")));
  }
}

/// Starts generation after generation, until one ends well or there is no use in another.
class Launch {
 public:
  Launch(const LaunchOptions& options, parallel::NodePlace node, RankProgram program,
         Console& console)
      : options_(options), node_(std::move(node)), program_(std::move(program)), console_(console) {
    node_.run_id = run_id_of(node_);
    signals_.run_interruptible([&] {
      agents_.emplace(node_,
                      parallel::stable_hash(fmt::format("{}", fmt::join(options_.command, "\n"))),
                      std::chrono::seconds(options_.join_timeout), log_);
      ranks_ =
          ranks_of(agents_->exchange("ranks", std::to_string(options_.nproc_per_node)), node_.node);
    });
  }

  int run() {
    for (int generation = 0;; ++generation) {
      const Verdict verdict = run_generation(generation);
      const bool useless = verdict.exit_code == kUserError || verdict.stopped || verdict.alone;
      if (!verdict.failed || useless || generation >= options_.max_restarts)
        return verdict.exit_code;
      const auto pause =
          std::min(std::chrono::seconds(1) * (1 << std::min(generation, 5)), kLongestPause);
      say(fmt::format("restart {} of {} in {} s", generation + 1, options_.max_restarts,
                      pause.count()));
      signals_.run_interruptible([&] { std::this_thread::sleep_for(pause); });
    }
  }

 private:
  void say(std::string_view text) { console_.warning(fmt::format("launch: {}", text)); }

  /// The ranks' own meeting place, on node 0. A port of its own for each generation: a process of
  /// an earlier one finds nobody.
  std::unique_ptr<parallel::RendezvousServer> serve(int generation) {
    parallel::ServerOptions options;
    options.party.run_id = node_.run_id;
    options.party.world = ranks_.world;
    options.party.generation = generation;
    options.host = node_.nodes == 1 ? kOnlyHere : "";
    options.on_trouble = [this, generation](const parallel::Trouble& trouble) {
      agents_->post({.kind = Notice::Kind::suspect,
                     .generation = generation,
                     .rank = trouble.rank,
                     .text = trouble.reason});
    };
    options.log = log_;
    return std::make_unique<parallel::RendezvousServer>(std::move(options));
  }

  std::optional<fs::path> logs_of(int generation) const {
    if (!options_.log_dir) return std::nullopt;
    fs::path folder = fs::path(*options_.log_dir) / fmt::format("generation-{}", generation);
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) io::throw_system_error("create", folder, error.value());
    return folder;
  }

  Verdict run_generation(int generation) {
    Supervisor supervisor(*agents_, signals_, generation, node_.nodes,
                          std::chrono::seconds(options_.grace),
                          [this](std::string_view text) { say(text); });
    const std::optional<fs::path> logs = logs_of(generation);
    std::unique_ptr<parallel::RendezvousServer> server;
    if (node_.node == 0) server = serve(generation);
    std::string port;
    signals_.run_interruptible([&] {
      port = agents_
                 ->exchange(fmt::format("generation {}", generation),
                            server ? std::to_string(server->port()) : "")
                 .front();
    });
    std::uint16_t number = 0;
    std::from_chars(port.data(), port.data() + port.size(), number);
    try {
      RankGroup group(
          program_, places_of(node_, ranks_, generation, number), logs, signals_.before(), guard_,
          [](int rank, OutputStream stream, std::string_view text) { show(rank, stream, text); });
      return supervisor.watch(group);
    } catch (const UserError& error) {
      // The ranks of other nodes would wait for ours.
      agents_->post(
          {.kind = Notice::Kind::failed,
           .generation = generation,
           .number = kUserError,
           .text = fmt::format("node {} cannot start its ranks: {}", node_.node, error.what())});
      agents_->post({.kind = Notice::Kind::ended, .generation = generation});
      throw;
    }
  }

  static void show(int rank, OutputStream stream, std::string_view text) {
    std::FILE* file = stream == OutputStream::out ? stdout : stderr;
    const std::string line = fmt::format("[rank{}] {}\n", rank, text);
    std::fwrite(line.data(), 1, line.size(), file);
    std::fflush(file);
  }

  const LaunchOptions& options_;
  parallel::NodePlace node_;
  RankProgram program_;
  Console& console_;
  // In this order: the guard and the queue before any thread.
  Guard guard_;
  SignalQueue signals_;
  Logger log_{[this](LogLevel level, std::string_view text) {
    if (level >= LogLevel::warning) console_.warning(text);
  }};
  std::optional<Agents> agents_;
  Ranks ranks_;
};

}  // namespace

int launch(const LaunchOptions& options, const std::vector<std::string>& own_commands) {
  // A reader of the output that goes away, as head does, shall not end the ranks.
  std::signal(SIGPIPE, SIG_IGN);
  parallel::Environment environment = program_environment();
  const parallel::NodePlace node = detect_node(environment, overrides_of(options));
  RankProgram program = program_of(options, own_commands, std::move(environment));
  Console console;
  if (options.dry_run) {
    // The other nodes are not asked: as many ranks on each.
    const auto count = static_cast<int>(options.nproc_per_node);
    print_places(
        console,
        places_of(node, {count * node.node, count * node.nodes, count}, 0, node.rendezvous.port),
        program);
    return 0;
  }
  check_meeting_place(options, program.environment, node);
  return Launch(options, node, std::move(program), console).run();
}

}  // namespace megatrain::launcher
