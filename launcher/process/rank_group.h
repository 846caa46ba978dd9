#pragma once
/// @file
/// The ranks of this node in one generation.

#include <poll.h>

#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/process/child.h"
#include "launcher/process/rank_output.h"
#include "parallel/rendezvous/place.h"

namespace megatrain::launcher {

/// What every rank runs.
struct RankProgram {
  std::string file;
  std::vector<std::string> arguments;  ///< the first is the name that the program sees
  parallel::Environment environment;   ///< without what tells ranks apart
};

struct EndedRank {
  int rank;
  Ending ending;
};

class RankGroup {
 public:
  /// Takes a rank's line without its end.
  using RankLine = std::function<void(int rank, OutputStream, std::string_view)>;

  /// Starts a process for each place.
  /// @param logs  a folder that exists, for a file rank-N.log each; empty: none
  RankGroup(const RankProgram& program, const std::vector<parallel::ProcessPlace>& places,
            const std::optional<std::filesystem::path>& logs, const sigset_t& blocked, Guard& guard,
            const RankLine& line);

  /// The pipes that are open, for poll().
  void add_to(std::vector<pollfd>& polled) const;
  /// Reads some of what is there, of all.
  void read();
  /// Ranks that have ended since the last call; all that they wrote has been read.
  std::vector<EndedRank> take_ended();
  /// To all that run.
  void signal(int number);
  [[nodiscard]] bool running() const;
  [[nodiscard]] std::string last_lines(int rank) const;
  /// Hands on lines that have no end: the ranks write no more.
  void finish();

 private:
  struct Rank {
    int number;
    Child child;
    RankOutput output;

    Rank(const RankProgram& program, const parallel::ProcessPlace& place,
         const std::optional<std::filesystem::path>& logs, const sigset_t& blocked, Guard& guard,
         const RankLine& line);
  };
  static void read(Rank& rank, std::size_t most);

  std::deque<Rank> ranks_;
};

}  // namespace megatrain::launcher
