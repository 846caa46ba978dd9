#pragma once
/// @file
/// A model in parts: what a part is, and how a parameter is divided. Who holds the other parts, and
/// how they meet, is for others to know (core/model/part_group.h).

#include <vector>

#include "core/base/types.h"

namespace megatrain {

/// Part `index` of `count` equal parts of a model. Every layer is computed by all parts together:
/// each has a share of the heads, of the MLP's columns and of the vocabulary.
struct Partition {
  Index count = 1;
  Index index = 0;
  /// Does what must be done once: adds the bias to a sum over parts, counts what every part holds.
  [[nodiscard]] bool first() const { return index == 0; }
  bool operator==(const Partition&) const = default;
};

/// How a parameter is divided among the parts of a model.
struct ShardSpec {
  /// Each part has an equal run along this dimension of the whole shape; -1: each has all of it.
  int dimension = -1;
  /// Extents along it that are cut each by itself, one after another: q, k and v of one tensor.
  /// Empty: one. One that the parts do not divide is padded at its end; only a table's rows are.
  std::vector<Index> groups = {};
  /// Of a parameter that each part has all of, but uses for its own share of the work (a norm over
  /// each head): the gradient is the sum over parts. Otherwise parts find the same gradient.
  bool sum_gradient = false;

  [[nodiscard]] bool divided() const { return dimension >= 0; }
  bool operator==(const ShardSpec&) const = default;
};

/// Elements of a part that lie side by side in the whole parameter too.
struct PartRun {
  Index part = 0;   ///< the first, counted in the part
  Index whole = 0;  ///< the same, counted in the whole parameter
  Index count = 0;
};

}  // namespace megatrain
