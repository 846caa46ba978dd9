#pragma once
/// @file
/// The ranks of a run as threads.

#include <exception>
#include <thread>
#include <vector>

namespace megatrain::testing {

/// Runs body(rank) on a thread each and returns what each threw, if it did.
template <class Body>
std::vector<std::exception_ptr> on_threads(int ranks, const Body& body) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  threads.clear();
  return failures;
}

}  // namespace megatrain::testing
