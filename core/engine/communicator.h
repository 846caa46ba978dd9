#pragma once
/// @file
/// What the engine needs of other ranks: collectives that are enqueued like copies, and small
/// agreements on the host. Implemented outside the core; for one rank by a no-op, never by a null.

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device/device.h"

namespace megatrain {

/// A collective that cannot be finished, because a peer is gone, late, or gave up. Its message
/// names the collective and the ranks to blame.
class PeerError : public Error {
 public:
  PeerError(const std::string& message, std::vector<int> ranks)
      : Error(message), ranks_(std::move(ranks)) {}
  /// Who is to blame, as far as it is known; ranks of the communicator.
  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::vector<int> ranks_;
};

/// The ranks along one process axis, as one of them sees it.
///
/// Every rank makes the same calls with the same arguments in the same order. Collectives are
/// enqueued: the call returns at once, work of the stream that follows sees the result, and other
/// streams meet it through events. All collectives of a communicator go to one stream (two that
/// shall overlap need two communicators), from one issuing thread. Buffers belong to the collective
/// until it is reached.
///
/// Sums are fp32, and each element is added up once, so that all who get it get the same bits: an
/// all_reduce gives every rank the same ones. On CPUs the order is that of the ranks, ((x0 + x1) +
/// x2) + ..., and bits depend on nothing else. On GPUs it is the one that NCCL chooses, which may
/// differ from element to element: it depends on the library, its settings, the count, and how the
/// GPUs are connected. NCCL promises no more of it; where it adds along rings and trees, it does
/// not depend on timing.
///
/// A collective waits for its peers for a time that is fixed when the communicator is made. When
/// one fails, what it should have written is garbage, and all that follow it fail too. On CPUs it
/// fails its stream, as other work does, with a PeerError. On a GPU the stream goes on: who has
/// waited for a result calls check() before it is used.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// For messages: "data", "tensor of replica 3".
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// Each rank's `slice` of `count` elements, in the order of the ranks, into `whole` of
  /// size() * count elements. `slice` may lie at its own place of `whole`, and may not overlap it
  /// otherwise.
  virtual void all_gather(Stream& stream, const void* slice, void* whole, Index count,
                          DType type) = 0;
  /// The sum over ranks of `whole`, size() * count elements; of it the elements from rank() * count
  /// on into `slice`, `count` elements, which may lie at that place of `whole`. The rest of `whole`
  /// is left as it is.
  virtual void reduce_scatter(Stream& stream, const float* whole, float* slice, Index count) = 0;
  /// The sum over ranks, in place.
  virtual void all_reduce(Stream& stream, float* data, Index count) = 0;
  /// The same for either type. On CPUs bf16 is added up in fp32 and rounded once; NCCL may round on
  /// the way.
  /// @throws LogicError where that is not implemented
  virtual void all_reduce(Stream& stream, void* data, Index count, DType type) {
    require(type == DType::f32, "a communicator that adds up fp32 alone");
    all_reduce(stream, static_cast<float*>(data), count);
  }
  /// What `root` has, to all.
  virtual void broadcast(Stream& stream, void* data, Index count, DType type, int root) = 0;

  /// Agreements of the issuing threads, for norms and decisions: they block, also for collectives
  /// that were issued before them.
  /// Replaces each value by its sum over ranks, added in their order. @throws PeerError
  virtual void sum(std::span<double> values) = 0;
  /// The largest value of any rank; NaN when one has NaN. @throws PeerError
  [[nodiscard]] virtual double max(double value) = 0;
  /// Returns when every rank has called it. @throws PeerError after `deadline`
  virtual void barrier(std::chrono::milliseconds deadline) = 0;

  /// Returns when nothing has failed so far: every result that was waited for before this call is
  /// good. An agreement that returns says the same. @throws PeerError
  virtual void check() = 0;

  /// Ends the communicator for all ranks: what waits, here and on the peers, fails and names
  /// `reason`, and so does what comes later. From any thread, any number of times: the first
  /// counts.
  virtual void abort(std::string_view reason) noexcept = 0;
};

}  // namespace megatrain
