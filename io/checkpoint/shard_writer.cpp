#include "io/checkpoint/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "io/folder.h"
#include "io/hdf5/hdf5_file.h"

namespace megatrain::io {

Checksum metadata_checksum(const InputFile& file, std::span<const Hdf5Dataset* const> datasets) {
  std::vector<std::pair<Index, Index>> holes;
  for (const Hdf5Dataset* dataset : datasets)
    if (dataset->compact.empty()) holes.emplace_back(dataset->offset, dataset->bytes);
  holes.emplace_back(file.bytes(), 0);
  std::ranges::sort(holes);
  ChecksumStream sum;
  std::vector<std::byte> piece;
  Index at = 0;
  for (const auto& [begin, bytes] : holes) {
    constexpr Index kPiece = Index{1} << 20;
    for (; at < begin; at += std::ssize(piece)) {
      piece.resize(static_cast<std::size_t>(std::min(kPiece, begin - at)));
      file.read(at, piece);
      sum.add(piece);
    }
    at = std::max(at, begin + bytes);
  }
  return sum.value();
}

struct ShardWriter::Shard {
  ShardSpec spec;
  Hdf5Layout layout;
  std::unique_ptr<DirectFile> file;
  ManifestShard manifest;
  std::atomic<Index> bytes_left = 0;
};

ShardWriter::ShardWriter(const std::filesystem::path& folder, std::vector<ShardSpec> shards,
                         std::span<const Hdf5Attribute> attributes, Hdf5Bf16 bf16)
    : folder_(folder) {
  for (ShardSpec& spec : shards) {
    auto shard = std::make_unique<Shard>();
    const std::filesystem::path path = folder / spec.name;
    shard->layout = create_hdf5(path, spec.datasets, attributes, bf16);
    shard->file = std::make_unique<DirectFile>(path, DirectFile::Mode::write);
    shard->manifest.name = spec.name;
    shard->manifest.bytes = shard->layout.bytes;
    for (const Hdf5DatasetSpec& dataset : spec.datasets) {
      ManifestDataset entry{dataset.path, dataset.type, dataset.shape, {}};
      const Index bytes = entry.bytes();
      entry.blocks.resize(static_cast<std::size_t>(ceil_div(bytes, kBlockBytes)));
      shard->bytes_left += bytes;
      shard->manifest.datasets.push_back(std::move(entry));
    }
    shard->spec = std::move(spec);
    shards_.push_back(std::move(shard));
  }
  claim_space();
}

void ShardWriter::claim_space() {
  Index bytes = 0;
  for (const auto& shard : shards_) bytes += shard->layout.bytes;
  const std::optional<Index> available = available_disk(folder_);
  if (available && *available < bytes)
    throw UserError(fmt::format("{} takes {}, but its disk has {} left (No space left on device)",
                                folder_.string(), format_bytes(bytes), format_bytes(*available)));
  // Where the file system can, nobody else takes it meanwhile.
  for (const auto& shard : shards_) shard->file->reserve(shard->layout.bytes);
}

ShardWriter::~ShardWriter() = default;

Index ShardWriter::block_bytes(const BlockId& id) const {
  const Index bytes = shards_[id.shard]->manifest.datasets[id.dataset].bytes();
  return std::min(kBlockBytes, bytes - id.block * kBlockBytes);
}

std::vector<BlockId> ShardWriter::blocks() const {
  std::vector<BlockId> all;
  for (std::size_t s = 0; s < shards_.size(); ++s)
    for (std::size_t d = 0; d < shards_[s]->manifest.datasets.size(); ++d)
      for (Index b = 0; b < std::ssize(shards_[s]->manifest.datasets[d].blocks); ++b)
        all.push_back({s, d, b});
  return all;
}

void ShardWriter::write(const BlockId& id, std::span<const std::byte> data) {
  require(std::ssize(data) == block_bytes(id), "a block is written whole");
  Shard& shard = *shards_[id.shard];
  shard.manifest.datasets[id.dataset].blocks[static_cast<std::size_t>(id.block)] = checksum(data);
  shard.file->write(shard.layout.offsets[id.dataset] + id.block * kBlockBytes, data);
  shard.bytes_left -= std::ssize(data);
}

std::vector<ManifestShard> ShardWriter::finish() {
  std::vector<ManifestShard> manifests;
  for (const auto& shard : shards_) {
    require(shard->bytes_left == 0, "every block of a shard is written once");
    shard->file->sync();
    // Read again from the file: this is also the proof that it opens and says what was meant.
    const Hdf5File written(folder_ / shard->spec.name);
    std::vector<const Hdf5Dataset*> datasets;
    for (std::size_t d = 0; d < shard->spec.datasets.size(); ++d) {
      const Hdf5Dataset* dataset = written.find(shard->spec.datasets[d].path);
      if (dataset == nullptr || dataset->offset != shard->layout.offsets[d])
        throw Error(
            fmt::format("{}: {} is not where it was written; the disk or its file system "
                        "may be failing",
                        written.path().string(), shard->spec.datasets[d].path));
      datasets.push_back(dataset);
    }
    if (written.bytes() != shard->layout.bytes)
      throw Error(
          fmt::format("{} has {} bytes, but {} were written; the disk or its file system "
                      "may be failing",
                      written.path().string(), written.bytes(), shard->layout.bytes));
    shard->manifest.metadata = metadata_checksum(InputFile(written.path()), datasets);
    manifests.push_back(shard->manifest);
  }
  return manifests;
}

}  // namespace megatrain::io
