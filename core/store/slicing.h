#pragma once
/// @file
/// How the ranks of a shard group divide the slabs of a model among them.

#include <algorithm>

#include "core/model/model.h"

namespace megatrain {

/// Elements [first, last).
struct ElementRange {
  Index first = 0;
  Index last = 0;
  [[nodiscard]] Index count() const { return last - first; }
  [[nodiscard]] bool empty() const { return first >= last; }
  bool operator==(const ElementRange&) const = default;
};

/// Rank `index` of `count` owns one of `count` equal slices of every slab, in rank order. Slices
/// are whole multiples of kSlabAlignment elements, so that one rank's padding follows the last: the
/// slices together are as long as the slab or longer, and what is past its end is zero.
struct Slicing {
  Index count = 1;
  Index index = 0;

  /// Elements of each rank's slice of a slab.
  [[nodiscard]] Index slice(Index slab_elements) const {
    return round_up(ceil_div(slab_elements, count), kSlabAlignment);
  }
  /// Elements of all slices together: what a slot or an accumulator of the slab has room for.
  [[nodiscard]] Index padded(Index slab_elements) const { return count * slice(slab_elements); }
  /// Where this rank's slice begins in the slab.
  [[nodiscard]] Index begin(Index slab_elements) const { return index * slice(slab_elements); }
  /// The elements of a slab that this rank's slice is.
  [[nodiscard]] ElementRange elements(Index slab_elements) const {
    const Index first = begin(slab_elements);
    return {first, first + slice(slab_elements)};
  }
  /// The elements of `param`, counted from its own first one, that lie in this rank's slice of its
  /// unit's slab. Empty where none do.
  [[nodiscard]] ElementRange held(const Unit& unit, const ParamDesc& param) const {
    const Index first = begin(unit.slab_elements) - param.offset;
    const Index last = first + slice(unit.slab_elements);
    return {std::clamp<Index>(first, 0, param.elements()),
            std::clamp<Index>(last, 0, param.elements())};
  }
  bool operator==(const Slicing&) const = default;
};

}  // namespace megatrain
