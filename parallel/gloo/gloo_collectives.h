#pragma once
/// @file
/// Collectives among processes by Gloo. Gloo moves data; sums are made here, in rank order.

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/communicator.h"
#include "parallel/cpu/cpu_communicator.h"
#include "parallel/gloo/gloo_mesh.h"

namespace megatrain {

/// Gloo's own reductions add in an order that differs from element to element, so a sum is made
/// of an all-to-all, an addition in rank order, and where all need it an all-gather: the same
/// number of bytes. It goes through buffers of a fixed size, piece by piece.
class GlooCollectives final : public BlockingCollectives {
 public:
  /// @param on_collective  called by each collective as it begins; may be empty
  GlooCollectives(std::shared_ptr<GlooMesh> mesh, std::shared_ptr<KeyValueStore> store,
                  std::string name, std::function<void()> on_collective);

  void all_gather(const Call& call, const std::byte* slice, std::byte* whole) override;
  void reduce_scatter(const Call& call, const float* whole, float* slice) override;
  void all_reduce(const Call& call, std::byte* data) override;
  void broadcast(const Call& call, std::byte* data) override;
  void gather(const Call& call, std::span<const double> mine, std::span<double> all) override;
  void barrier(const Call& call, std::chrono::milliseconds deadline) override;
  void abort(std::string_view reason) noexcept override;
  void leave() noexcept override {}  // the connections end with the last user of this object

 private:
  using Buffer = ::gloo::transport::UnboundBuffer;
  class Guard;

  /// Runs `body`; what goes wrong becomes a PeerError that says who and where.
  void run(const Call& call, const std::function<void()>& body);
  [[noreturn]] void fail(const Call& call, const std::string& what);
  /// Every rank's `bytes` bytes at their places of `whole`; this rank's are there.
  void gather_in_place(const Call& call, std::byte* whole, std::size_t bytes,
                       std::chrono::milliseconds deadline);
  /// `count` elements of send_ for each rank; of what comes back the sum into `sum`.
  void exchange_and_sum(const Call& call, float* sum, Index count);

  /// Why a rank gave up, and whom it blames: nobody as long as it does not know.
  struct LastWords {
    std::vector<int> ranks;
    std::string text;
  };
  /// Peers whose connection is broken, by no doing of this rank.
  std::vector<int> lost_peers();
  /// What became of the lost peers; blames nobody when they do not either.
  [[nodiscard]] PeerError explain(const std::string& what, const std::vector<int>& lost);
  /// Whom others blame, or else who does not say that it is in trouble.
  [[nodiscard]] PeerError ask_all(const PeerError& error);
  [[nodiscard]] std::string last_words_key(int of) const;
  /// Both throw a PeerError of the store, which then knows what ended the work of all.
  std::optional<LastWords> last_words(int of, std::chrono::milliseconds patience);
  void say_last_words(const LastWords& words);
  /// Closes all connections, and wakes every thread that is inside a collective.
  void shut_down() noexcept;
  void close_connections() noexcept;

  const std::shared_ptr<GlooMesh> mesh_;
  const std::shared_ptr<KeyValueStore> store_;
  const std::string name_;
  const int rank_;
  const int size_;
  const std::function<void()> on_collective_;
  // The stream's collectives use them, one at a time.
  std::vector<float> send_;
  std::vector<float> received_;

  std::mutex mutex_;
  std::list<Buffer*> in_flight_;      // under mutex_: what collectives wait on
  std::optional<PeerError> failure_;  // under mutex_: the first one ends all
};

}  // namespace megatrain
