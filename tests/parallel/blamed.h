#pragma once
/// @file
/// How a rank's process says whom it blames, and what the test makes of it.

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace megatrain::testing {

/// What a process of one rank came to.
struct RankEnd {
  int exit_code = -1;
  std::string output;
};

/// Every rank but `victim` must have ended by a PeerError that blames it, with `words`.
inline void expect_blamed(const std::vector<RankEnd>& ends, int victim, const std::string& words) {
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    if (static_cast<int>(rank) == victim) continue;
    EXPECT_EQ(ends[rank].exit_code, 3) << ends[rank].output;
    for (const std::string& text : {"blames " + std::to_string(victim) + "\n", words})
      EXPECT_NE(ends[rank].output.find(text), std::string::npos)
          << "rank " << rank << " does not say '" << text << "': " << ends[rank].output;
  }
}

}  // namespace megatrain::testing
