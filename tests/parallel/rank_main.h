#pragma once
/// @file
/// The main() of a program that is one rank: prints whom a PeerError blames and ends with 3.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <exception>
#include <string>
#include <vector>

#include "core/engine/communicator.h"

namespace megatrain::testing {

/// @param run  takes the arguments, the program's name among them, and returns the exit code
template <class Run>
int rank_main(int argc, char** argv, const Run& run) {
  try {
    return run(std::vector<std::string>{argv, argv + argc});
  } catch (const PeerError& error) {
    fmt::print("{}\nblames {}\n", error.what(), fmt::join(error.ranks(), " "));
    return 3;
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}

}  // namespace megatrain::testing
