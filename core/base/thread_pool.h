#pragma once
/// @file
/// A fixed set of worker threads for loops whose pieces are independent. Results never depend on
/// the number of threads: callers cut work into fixed pieces, the pool only decides who runs which.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace megatrain {

class ThreadPool {
 public:
  /// @param threads  total threads that work in a loop, the caller's included (>= 1)
  /// @param cpus     optional: the cpu that each worker is pinned to (worker i -> cpus[i]), where
  ///                 the system lets it; the caller, which is worker 0, stays where it is
  explicit ThreadPool(int threads, std::vector<int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const;

  /// Runs body(piece) for every piece in [0, pieces) and returns when all are done; pieces are
  /// handed out in order. The first exception of a piece is rethrown here (the rest still run).
  /// One loop at a time per pool; not reentrant from inside a body.
  void for_each(std::int64_t pieces, const std::function<void(std::int64_t)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megatrain
