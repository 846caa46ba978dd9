#pragma once
/// @file
/// Communicators of the CPU device: collectives that block a thread, run by a stream's thread.

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/engine/communicator.h"
#include "parallel/cpu/call.h"

namespace megatrain {

/// One rank's end of a group of ranks. Each call blocks its thread until the collective is done;
/// calls are told apart by their number, so two threads may be inside at a time: the stream's and
/// the one that issues. All calls throw PeerError when a peer is gone or late, or after abort().
class BlockingCollectives {
 public:
  virtual ~BlockingCollectives() = default;
  virtual void all_gather(const Call& call, const std::byte* slice, std::byte* whole) = 0;
  virtual void reduce_scatter(const Call& call, const float* whole, float* slice) = 0;
  /// Of call.type.
  virtual void all_reduce(const Call& call, std::byte* data) = 0;
  virtual void broadcast(const Call& call, std::byte* data) = 0;
  /// The values of each rank, in the order of the ranks, into `all`.
  virtual void gather(const Call& call, std::span<const double> mine, std::span<double> all) = 0;
  virtual void barrier(const Call& call, std::chrono::milliseconds deadline) = 0;
  virtual void abort(std::string_view reason) noexcept = 0;
  /// The communicator is gone: collectives still enqueued may finish, no more will come.
  virtual void leave() noexcept = 0;
};

/// A communicator over `collectives`, which outlives it as long as work of a stream needs it.
std::unique_ptr<Communicator> make_cpu_communicator(
    std::string name, int rank, int size, std::shared_ptr<BlockingCollectives> collectives);

}  // namespace megatrain
