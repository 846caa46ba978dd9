#pragma once
/// @file
/// Where and by how much two sets of tensors differ.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/pieces.h"
#include "io/tensors/tensor_set.h"

namespace megatrain::io {

/// How the values of two tensors differ. Values of one type differ when their bits do, values of
/// two types when they are not the same number (NaN and NaN are).
struct ValueDifference {
  Index elements = 0;      ///< compared
  Index differing = 0;     ///< of these
  std::string place = {};  ///< of the first one: "[3, 17]"; "byte 5" where the type is no number
  std::string a = {}, b = {};  ///< there
  /// Largest |a - b|, and largest |a - b| / max(|a|, |b|); infinite where one of the two is not
  /// finite, 0 where only the sign of zero or the bits of a NaN differ.
  double max_absolute = 0, max_relative = 0;
};

/// A tensor of both sets that is not the same in them: another type, another shape, or other
/// values.
struct TensorDifference {
  const NamedTensor* a = nullptr;
  const NamedTensor* b = nullptr;
  bool compared = false;  ///< values were; not those of other shapes, or of types without numbers
  std::optional<ValueDifference> values = std::nullopt;
};

struct SetComparison {
  std::vector<const NamedTensor*> only_a, only_b;  ///< by name
  std::vector<TensorDifference> differences;       ///< by name
  Index equal = 0;                                 ///< tensors that are the same
  Index compared = 0;                              ///< tensors of both sets that were looked at
  [[nodiscard]] bool same() const {
    return only_a.empty() && only_b.empty() && differences.empty();
  }
};

/// Compares tensors of the same name, both lists by name. @param all  false: stops at the first
/// difference. Pointers of the result point into the lists.
/// @throws UserError for tensors whose values cannot be read, and as reading does
SetComparison compare_tensors(std::span<const NamedTensor> a, std::span<const NamedTensor> b,
                              bool all, ThreadPool& pool, const Progress& progress = {});

}  // namespace megatrain::io
