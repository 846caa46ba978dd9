#include "io/tensors/statistics.h"

#include <algorithm>
#include <cmath>

#include "io/tensors/values.h"

namespace megatrain::io {

namespace {

/// Statistics of some values that can be joined with those of others: `squares` is the sum of the
/// squared distances from the mean.
struct Moments {
  TensorStatistics sums;
  double squares = 0;
};

Moments moments_of(std::span<const double> values) {
  Moments moments;
  TensorStatistics& sums = moments.sums;
  sums.elements = std::ssize(values);
  double sum = 0;
  bool first = true;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? sums.nan : sums.infinite);
      continue;
    }
    if (value == 0) ++sums.zero;
    sum += value;
    sums.min = first ? value : std::min(sums.min, value);
    sums.max = first ? value : std::max(sums.max, value);
    first = false;
  }
  if (first) return moments;
  sums.mean = sum / static_cast<double>(sums.finite());
  for (const double value : values)
    if (std::isfinite(value)) moments.squares += (value - sums.mean) * (value - sums.mean);
  return moments;
}

/// Joins two disjoint parts (Chan, Golub, LeVeque).
Moments joined(const Moments& a, const Moments& b) {
  Moments all = a;
  TensorStatistics& sums = all.sums;
  sums.elements += b.sums.elements;
  sums.nan += b.sums.nan;
  sums.infinite += b.sums.infinite;
  sums.zero += b.sums.zero;
  if (b.sums.finite() == 0) return all;
  const auto count_a = static_cast<double>(a.sums.finite());
  const auto count_b = static_cast<double>(b.sums.finite());
  const double distance = b.sums.mean - a.sums.mean;
  const bool first = a.sums.finite() == 0;
  sums.min = first ? b.sums.min : std::min(a.sums.min, b.sums.min);
  sums.max = first ? b.sums.max : std::max(a.sums.max, b.sums.max);
  sums.mean = first ? b.sums.mean : a.sums.mean + distance * (count_b / (count_a + count_b));
  all.squares = a.squares + b.squares;
  if (!first) all.squares += distance * distance * (count_a * count_b / (count_a + count_b));
  return all;
}

}  // namespace

std::vector<std::optional<TensorStatistics>> tensor_statistics(std::span<const NamedTensor> tensors,
                                                               ThreadPool& pool,
                                                               const Progress& progress) {
  struct Piece {
    const NamedTensor* tensor;
    Index first, count;
    Moments moments;
  };
  std::vector<Piece> pieces;
  Index total = 0;
  const auto readable = [](const NamedTensor& tensor) {
    return tensor.refusal.empty() && converts_to_double(tensor.type);
  };
  for (const NamedTensor& tensor : tensors) {
    if (!readable(tensor)) continue;
    total += tensor.bytes;
    const Index elements = tensor.elements();
    for (Index first = 0; first < elements; first += kPieceElements)
      pieces.push_back({&tensor, first, std::min(kPieceElements, elements - first), {}});
  }
  run_pieces(pool, std::ssize(pieces), total, progress, [&](Index i) {
    Piece& piece = pieces[static_cast<std::size_t>(i)];
    const Index width = bits_of(piece.tensor->type) / 8;
    std::vector<std::byte> bytes(static_cast<std::size_t>(piece.count * width));
    piece.tensor->read(piece.first * width, bytes);
    std::vector<double> values(static_cast<std::size_t>(piece.count));
    to_doubles(piece.tensor->type, bytes, values);
    piece.moments = moments_of(values);
    return std::ssize(bytes);
  });

  std::vector<std::optional<TensorStatistics>> all;
  std::size_t next = 0;
  for (const NamedTensor& tensor : tensors) {
    all.emplace_back();
    if (!readable(tensor)) continue;
    Moments moments;
    for (; next < pieces.size() && pieces[next].tensor == &tensor; ++next)
      moments = joined(moments, pieces[next].moments);
    if (const Index finite = moments.sums.finite(); finite > 0)
      moments.sums.std = std::sqrt(moments.squares / static_cast<double>(finite));
    all.back() = moments.sums;
  }
  return all;
}

}  // namespace megatrain::io
