#include "io/checkpoint/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/read_blocks.h"
#include "io/checkpoint/state_layout.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

/// How states are stored that are kept so; nullopt: nothing is kept so.
std::optional<FileType> stored_as(std::string_view format) {
  for (const DType type : {DType::f32, DType::bf16})
    if (format == name(type)) return file_type(type);
  return std::nullopt;
}

}  // namespace

void check_state_format(const std::filesystem::path& file, const Hdf5Dataset& dataset) {
  const auto found = std::ranges::find(dataset.attributes, kStateFormat, &Hdf5Attribute::name);
  if (found == dataset.attributes.end()) return;
  const auto* format = std::get_if<std::string>(&found->value);
  if (format != nullptr && stored_as(*format) == dataset.type) return;
  throw DamagedCheckpoint(fmt::format("{}: {} is {}, but its attribute {} says {}", file.string(),
                                      quote(dataset.path), name(dataset.type), kStateFormat,
                                      format == nullptr ? "a number" : quote(*format)));
}

void verify_values(const Checkpoint& checkpoint, BlockPool& blocks, ThreadPool& pool,
                   const Progress& progress) {
  std::vector<BlockRange> ranges;
  for (const auto& [path, tensor] : checkpoint.tensors()) {
    check_state_format(tensor.file->path(), *tensor.dataset);
    ranges.push_back(all_blocks(tensor));
  }
  read_blocks(checkpoint, ranges, blocks, pool, progress,
              [](std::size_t, Index, std::span<const std::byte>) {});
}

}  // namespace megatrain::io
