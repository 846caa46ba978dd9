#pragma once
/// @file
/// The main() of a program that is one rank: prints whom a PeerError blames and ends with 3.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "core/engine/communicator.h"

namespace megatrain::testing {

/// PROGRAM FOLDER RANK SIZE TIMEOUT-MS SCENARIO VICTIM
struct RankArguments {
  explicit RankArguments(const std::vector<std::string>& words)
      : folder(words.at(1)),
        rank(std::stoi(words.at(2))),
        size(std::stoi(words.at(3))),
        timeout(std::stoi(words.at(4))),
        scenario(words.at(5)),
        victim(rank == std::stoi(words.at(6))) {}

  std::string folder;  ///< of the store that all see
  int rank;
  int size;
  std::chrono::milliseconds timeout;
  std::string scenario;
  bool victim;  ///< this rank does as the scenario says
};

/// @param run  takes RankArguments and returns the exit code
template <class Run>
int rank_main(int argc, char** argv, const Run& run) {
  try {
    return run(RankArguments({argv, argv + argc}));
  } catch (const PeerError& error) {
    fmt::print("{}\nblames {}\n", error.what(), fmt::join(error.ranks(), " "));
    return 3;
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}

}  // namespace megatrain::testing
