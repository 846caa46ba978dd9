#pragma once
/// @file
/// The process axes: who is who among the ranks of a run. Every axis always exists; an axis of
/// size 1 costs nothing and is no special case.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/communicator.h"

namespace megatrain {

/// From the axis whose neighbours are farthest apart to the one whose neighbours are consecutive
/// ranks, on one node where they fit: the more an axis talks, the closer its ranks.
enum class Axis : std::uint8_t { pipeline, data, expert, context, tensor };
inline constexpr std::size_t kAxes = 5;
std::string_view name(Axis axis);

/// A value for each axis.
template <class T>
class PerAxis {
 public:
  constexpr PerAxis() = default;
  constexpr explicit PerAxis(const T& all) { values_.fill(all); }
  [[nodiscard]] constexpr T& operator[](Axis axis) {
    return values_[static_cast<std::size_t>(axis)];
  }
  [[nodiscard]] constexpr const T& operator[](Axis axis) const {
    return values_[static_cast<std::size_t>(axis)];
  }
  bool operator==(const PerAxis&) const = default;

 private:
  std::array<T, kAxes> values_{};
};

using Coordinates = PerAxis<int>;

/// The world as a box of ranks.
class ProcessAxes {
 public:
  /// One process.
  ProcessAxes() : ProcessAxes(PerAxis<int>(1)) {}
  /// @throws UserError for a size below 1, or a world that does not fit an int
  explicit ProcessAxes(const PerAxis<int>& sizes);

  [[nodiscard]] int size(Axis axis) const { return sizes_[axis]; }
  /// The product of all sizes.
  [[nodiscard]] int world() const { return world_; }
  /// @throws LogicError for a rank outside the world
  [[nodiscard]] Coordinates coordinates(int rank) const;
  /// The inverse. @throws LogicError for coordinates outside the box
  [[nodiscard]] int rank(const Coordinates& coordinates) const;
  /// The ranks that differ from `rank` along `axis` only, itself included, by their coordinate.
  [[nodiscard]] std::vector<int> line(int rank, Axis axis) const;
  /// "tensor of ranks 4, 5", short, the same on each rank of the line, and different from all other
  /// lines.
  [[nodiscard]] std::string line_name(int rank, Axis axis) const;

 private:
  PerAxis<int> sizes_;
  int world_ = 1;
};

/// What a rank holds: a communicator for each axis, whatever its size.
using AxisCommunicators = PerAxis<std::unique_ptr<Communicator>>;

/// Connects a rank along every axis. `connect(name, rank, size)` makes one communicator; it is
/// called for the axes in their order, on every rank.
AxisCommunicators connect_axes(
    const ProcessAxes& axes, int rank,
    const std::function<std::unique_ptr<Communicator>(const std::string&, int, int)>& connect);

}  // namespace megatrain
