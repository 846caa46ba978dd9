#pragma once
/// @file
/// The conformance kit: what holds for every extension that runs over several ranks, as checks that
/// a test of any framework can call. Ranks are threads with a CPU device each. A check that fails
/// throws ConformanceError, which says what, where, and on which rank.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/communicator.h"
#include "parallel/axes/axes.h"
#include "parallel/cpu/call.h"

namespace megatrain::conformance {

class ConformanceError : public Error {
 public:
  using Error::Error;
};

/// One rank of a run.
class Rank {
 public:
  /// Makes a communicator of some ranks of the world, in their order.
  using Connect =
      std::function<std::unique_ptr<Communicator>(const std::string& name, std::span<const int>)>;

  Rank(const ProcessAxes& axes, int rank, Device& device, Stream& stream,
       const AxisCommunicators& communicators, Connect connect)
      : axes_(axes),
        rank_(rank),
        device_(device),
        stream_(stream),
        communicators_(communicators),
        connect_(std::move(connect)) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const ProcessAxes& axes() const { return axes_; }
  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] Stream& stream() const { return stream_; }
  [[nodiscard]] Communicator& along(Axis axis) const { return *communicators_[axis]; }
  /// A communicator besides those of the axes, for another stream or other ranks. Called on all
  /// `ranks`, this one among them, with the same name, which no other has. Its calls are compared
  /// too.
  [[nodiscard]] std::unique_ptr<Communicator> connect(const std::string& name,
                                                      std::span<const int> ranks) const {
    return connect_(name, ranks);
  }

 private:
  const ProcessAxes& axes_;
  int rank_;
  Device& device_;
  Stream& stream_;
  const AxisCommunicators& communicators_;
  Connect connect_;
};

struct Setting {
  ProcessAxes axes;
  /// Makes a rank's communicator of a line, on the rank's own thread; empty: local ones.
  std::function<std::unique_ptr<Communicator>(const std::string& line, int rank, int size)>
      connect = {};
};
/// `size` ranks along one axis.
Setting along(Axis axis, int size);

/// The calls that a rank made, by axis.
using Calls = PerAxis<std::vector<Call>>;

/// Runs `body` on every rank, and its stream to the end. Ranks of a line must have made the same
/// calls along it, and those of any other communicator too. When a rank throws, the others are
/// woken, and the first to throw is reported.
/// @returns the calls of each rank
std::vector<Calls> run_ranks(const Setting& setting, const std::function<void(Rank&)>& body);

/// Vectors that each rank has one of.
struct Space {
  Index count = 0;          ///< elements on a rank
  bool replicated = false;  ///< the same on all ranks of the line, and counted once
};

/// Enqueues on the rank's stream.
using LinearMap = std::function<void(Rank& rank, const float* from, float* to)>;

/// A linear map over the ranks of a line and the one that its backward pass uses.
struct ConjugatePair {
  std::string name;
  Axis axis = Axis::tensor;
  Space input;
  Space output;
  LinearMap forward;   ///< input to output
  LinearMap backward;  ///< output to input
};

/// <forward(x), y> must be <x, backward(y)> for vectors without structure, summed over all ranks
/// in fp64, up to `tolerance` times the sum of the magnitudes. Results in a replicated space must
/// have the same bits on each rank.
void check_conjugate(const Setting& setting, const ConjugatePair& pair, double tolerance = 1e-5);

/// `function` returns a result of the whole run, the same on each rank. With the axes of `setting`
/// it must be what it is with one rank: each element within `bound` times the largest magnitude;
/// 0 asks for the same bits. All ranks must agree on every bit whatever the bound.
void check_equal_to_one(const Setting& setting,
                        const std::function<std::vector<float>(Rank&)>& function, double bound);

}  // namespace megatrain::conformance
