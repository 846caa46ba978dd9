#include "io/tensors/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "io/tensors/values.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

/// How a tensor's elements are compared: as its type, or byte by byte.
FileType compared_type(const NamedTensor& tensor) {
  return converts_to_double(tensor.type) ? tensor.type : FileType::u8;
}

std::string place_text(const NamedTensor& tensor, Index element) {
  if (!converts_to_double(tensor.type)) return fmt::format("byte {}", element);
  std::vector<Index> place(tensor.shape.size());
  for (std::size_t d = place.size(); d-- > 0;) {
    place[d] = element % tensor.shape[d];
    element /= tensor.shape[d];
  }
  return shape_text(place);
}

void add_distance(double a, double b, ValueDifference& found) {
  if (std::isnan(a) && std::isnan(b)) return;
  const bool finite = std::isfinite(a) && std::isfinite(b);
  const double absolute = finite ? std::abs(a - b) : std::numeric_limits<double>::infinity();
  const double scale = std::max(std::abs(a), std::abs(b));
  found.max_absolute = std::max(found.max_absolute, absolute);
  if (absolute > 0)
    found.max_relative = std::max(found.max_relative, finite ? absolute / scale : absolute);
}

/// Compares `count` elements from `first` on. @returns what differs, counted from the tensor's
/// start
ValueDifference compare_piece(const NamedTensor& a, const NamedTensor& b, Index first,
                              Index count) {
  const FileType type_a = compared_type(a);
  const FileType type_b = compared_type(b);
  const auto width_a = static_cast<std::size_t>(bits_of(type_a) / 8);
  const auto width_b = static_cast<std::size_t>(bits_of(type_b) / 8);
  const auto elements = static_cast<std::size_t>(count);
  std::vector<std::byte> bytes_a(elements * width_a);
  std::vector<std::byte> bytes_b(elements * width_b);
  a.read(first * static_cast<Index>(width_a), bytes_a);
  b.read(first * static_cast<Index>(width_b), bytes_b);
  ValueDifference found{.elements = count};
  if (type_a == type_b && bytes_a == bytes_b) return found;

  std::vector<double> values_a(elements);
  std::vector<double> values_b(elements);
  to_doubles(type_a, bytes_a, values_a);
  to_doubles(type_b, bytes_b, values_b);
  for (std::size_t i = 0; i < elements; ++i) {
    const std::span<const std::byte> raw_a(bytes_a.data() + i * width_a, width_a);
    const std::span<const std::byte> raw_b(bytes_b.data() + i * width_b, width_b);
    const bool same = type_a == type_b ? std::ranges::equal(raw_a, raw_b)
                                       : values_a[i] == values_b[i] ||
                                             (std::isnan(values_a[i]) && std::isnan(values_b[i]));
    if (same) continue;
    if (found.differing++ == 0) {
      found.place = place_text(a, first + static_cast<Index>(i));
      found.a = value_text(type_a, raw_a);
      found.b = value_text(type_b, raw_b);
    }
    add_distance(values_a[i], values_b[i], found);
  }
  return found;
}

/// Two tensors of one shape and of types that can be compared.
ValueDifference compare_values(const NamedTensor& a, const NamedTensor& b, ThreadPool& pool,
                               const Progress& progress) {
  const Index elements = converts_to_double(a.type) ? a.elements() : a.bytes;
  const Index bytes = a.bytes + b.bytes;
  const Index pieces = ceil_div(elements, kPieceElements);
  std::vector<ValueDifference> found(static_cast<std::size_t>(pieces));
  run_pieces(pool, pieces, bytes, progress, [&](Index i) {
    const Index first = i * kPieceElements;
    const Index count = std::min(kPieceElements, elements - first);
    found[static_cast<std::size_t>(i)] = compare_piece(a, b, first, count);
    return bytes / elements * count;
  });
  ValueDifference all;
  for (const ValueDifference& piece : found) {
    if (all.differing == 0 && piece.differing > 0) {
      all.place = piece.place;
      all.a = piece.a;
      all.b = piece.b;
    }
    all.elements += piece.elements;
    all.differing += piece.differing;
    all.max_absolute = std::max(all.max_absolute, piece.max_absolute);
    all.max_relative = std::max(all.max_relative, piece.max_relative);
  }
  return all;
}

void require_readable(const NamedTensor& tensor) {
  if (!tensor.refusal.empty())
    throw UserError(fmt::format("{}: the values of {} cannot be read: {}", tensor.file,
                                quote(tensor.name), tensor.refusal));
}

}  // namespace

SetComparison compare_tensors(std::span<const NamedTensor> a, std::span<const NamedTensor> b,
                              bool all, ThreadPool& pool, const Progress& progress) {
  SetComparison result;
  std::vector<TensorDifference> common;
  Index total = 0;
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (j == b.size() || (i < a.size() && a[i].name < b[j].name)) {
      result.only_a.push_back(&a[i++]);
    } else if (i == a.size() || b[j].name < a[i].name) {
      result.only_b.push_back(&b[j++]);
    } else {
      total += a[i].bytes + b[j].bytes;
      common.push_back({&a[i++], &b[j++]});
    }
  }
  Index done = 0;
  for (TensorDifference& pair : common) {
    require_readable(*pair.a);
    require_readable(*pair.b);
    const bool same_type = pair.a->type == pair.b->type;
    const bool same_shape = pair.a->shape == pair.b->shape;
    const bool numbers = converts_to_double(pair.a->type) && converts_to_double(pair.b->type);
    pair.compared = same_shape && (same_type || numbers);
    if (pair.compared) {
      ValueDifference values = compare_values(*pair.a, *pair.b, pool, [&](Index part, Index) {
        if (progress) progress(done + part, total);
      });
      if (values.differing > 0) pair.values = std::move(values);
    }
    done += pair.a->bytes + pair.b->bytes;
    ++result.compared;
    if (same_type && same_shape && !pair.values) {
      ++result.equal;
      continue;
    }
    result.differences.push_back(std::move(pair));
    if (!all) break;
  }
  return result;
}

}  // namespace megatrain::io
