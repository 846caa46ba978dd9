#include "io/checkpoint/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "io/checkpoint/peers.h"
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

  [[nodiscard]] Index offset_of(const BlockPiece& piece) const {
    return layout.offsets[piece.dataset] + piece.first;
  }
};

namespace {

/// The datasets of a shard's specs as its file has them.
std::vector<const Hdf5Dataset*> find_datasets(const Hdf5File& file, const ShardSpec& spec) {
  std::vector<const Hdf5Dataset*> datasets;
  for (const Hdf5DatasetSpec& wanted : spec.datasets) {
    const Hdf5Dataset* dataset = file.find(wanted.path);
    if (dataset == nullptr || dataset->shape != wanted.shape || dataset->type != wanted.type)
      throw Error(
          fmt::format("{}: {} is not there as it was made; the disk or its file system may "
                      "be failing",
                      file.path().string(), wanted.path));
    datasets.push_back(dataset);
  }
  return datasets;
}

}  // namespace

ShardWriter::ShardWriter(const std::filesystem::path& folder, std::vector<ShardSpec> shards,
                         std::span<const Hdf5Attribute> attributes, Hdf5Bf16 bf16)
    : folder_(folder) {
  open(std::move(shards), [&](Shard& shard) {
    shard.layout = create_hdf5(folder_ / shard.spec.name, shard.spec.datasets, attributes, bf16);
  });
  claim_space();
}

ShardWriter::ShardWriter(const std::filesystem::path& folder, std::vector<ShardSpec> shards)
    : folder_(folder) {
  open(std::move(shards), [&](Shard& shard) {
    const Hdf5File made(folder_ / shard.spec.name);
    for (const Hdf5Dataset* dataset : find_datasets(made, shard.spec))
      shard.layout.offsets.push_back(dataset->offset);
    shard.layout.bytes = made.bytes();
  });
}

void ShardWriter::open(std::vector<ShardSpec> shards, const std::function<void(Shard&)>& make) {
  for (ShardSpec& spec : shards) {
    auto shard = std::make_unique<Shard>();
    shard->spec = std::move(spec);
    make(*shard);
    shard->file = std::make_unique<DirectFile>(folder_ / shard->spec.name, DirectFile::Mode::write);
    shard->manifest.name = shard->spec.name;
    shard->manifest.bytes = shard->layout.bytes;
    for (const Hdf5DatasetSpec& dataset : shard->spec.datasets) {
      ManifestDataset entry{dataset.path, dataset.type, dataset.shape, {}};
      entry.blocks.resize(static_cast<std::size_t>(ceil_div(entry.bytes(), kBlockBytes)));
      shard->manifest.datasets.push_back(std::move(entry));
    }
    shards_.push_back(std::move(shard));
  }
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

std::vector<BlockPiece> ShardWriter::cut(std::size_t shard, std::size_t dataset, Index first,
                                         Index last) {
  std::vector<BlockPiece> pieces;
  while (first < last) {
    const Index end = std::min(last, round_up(first + 1, kBlockBytes));
    pieces.push_back({shard, dataset, first, end - first});
    first = end;
  }
  return pieces;
}

std::vector<BlockPiece> ShardWriter::blocks() const {
  std::vector<BlockPiece> all;
  for (std::size_t s = 0; s < shards_.size(); ++s)
    for (std::size_t d = 0; d < shards_[s]->manifest.datasets.size(); ++d) {
      const std::vector<BlockPiece> blocks = cut(s, d, 0, shards_[s]->manifest.datasets[d].bytes());
      all.insert(all.end(), blocks.begin(), blocks.end());
    }
  return all;
}

void ShardWriter::write(const BlockPiece& piece, std::span<const std::byte> data) {
  require(std::ssize(data) == piece.bytes, "a piece is written whole");
  Shard& shard = *shards_[piece.shard];
  const Index end = piece.first + piece.bytes;
  require(end % kDirectAlignment == 0 || end == shard.manifest.datasets[piece.dataset].bytes(),
          "a page of a file has one writer");
  const Checksum sum = checksum(data);
  shard.file->write(shard.offset_of(piece), data);
  const std::lock_guard lock(mutex_);
  records_.push_back({piece, sum});
}

void ShardWriter::sync() {
  for (const auto& shard : shards_) shard->file->sync();
}

std::string ShardWriter::written() const {
  const std::lock_guard lock(mutex_);
  return to_bytes(std::span<const Record>(records_));
}

void ShardWriter::add(std::string_view written) {
  const std::lock_guard lock(mutex_);
  for (const Record& record : from_bytes<Record>(written)) records_.push_back(record);
}

void ShardWriter::sum_blocks(ThreadPool& pool, BlockPool& blocks) {
  const std::lock_guard lock(mutex_);
  std::ranges::sort(records_, {}, [](const Record& record) {
    return std::tuple(record.piece.shard, record.piece.dataset, record.piece.first);
  });
  std::vector<Pieces> cut_blocks;
  Pieces left(records_);
  for (const BlockPiece& block : this->blocks()) {
    // Pieces of a block that follow each other without a gap.
    std::size_t count = 0;
    Index bytes = 0;
    for (; count < left.size() && bytes < block.bytes; bytes += left[count++].piece.bytes) {
      const BlockPiece& piece = left[count].piece;
      require(piece.shard == block.shard && piece.dataset == block.dataset &&
                  piece.first == block.first + bytes,
              "every byte of a shard is written once");
    }
    require(bytes == block.bytes, "every block of a shard is written");
    if (count == 1)
      checksum_of(block) = left.front().sum;
    else
      cut_blocks.push_back(left.first(count));
    left = left.subspan(count);
  }
  require(left.empty(), "no byte of a shard is written twice");
  pool.for_each(std::ssize(cut_blocks), [&](Index i) {
    const Pieces pieces = cut_blocks[static_cast<std::size_t>(i)];
    checksum_of(pieces.front().piece) = read_back(pieces, blocks);
  });
}

Checksum& ShardWriter::checksum_of(const BlockPiece& piece) {
  return shards_[piece.shard]->manifest.datasets[piece.dataset].blocks[static_cast<std::size_t>(
      piece.block())];
}

Checksum ShardWriter::read_back(Pieces pieces, BlockPool& blocks) const {
  const BlockPiece& front = pieces.front().piece;
  const Shard& shard = *shards_[front.shard];
  const Index bytes = pieces.back().piece.first + pieces.back().piece.bytes - front.first;
  const BlockPool::Block block = blocks.acquire();
  const auto whole_pages = static_cast<std::size_t>(round_up(bytes, kDirectAlignment));
  const Index read = shard.file->read(shard.offset_of(front), block.bytes().first(whole_pages));
  const auto found = block.bytes().first(static_cast<std::size_t>(std::min(read, bytes)));
  for (const Record& record : pieces) {
    const auto& [piece, sum] = record;
    const auto begin = static_cast<std::size_t>(piece.first - front.first);
    const auto size = static_cast<std::size_t>(piece.bytes);
    if (begin + size > found.size() || checksum(found.subspan(begin, size)) != sum)
      throw Error(
          fmt::format("{}: bytes {} to {} of {} are not what was written there; the disk "
                      "or its file system may be failing",
                      shard.file->path().string(), piece.first, piece.first + piece.bytes,
                      shard.spec.datasets[piece.dataset].path));
  }
  return checksum(found);
}

std::vector<ManifestShard> ShardWriter::finish(ThreadPool& pool, BlockPool& blocks) {
  sync();
  sum_blocks(pool, blocks);
  std::vector<ManifestShard> manifests;
  for (const auto& shard : shards_) {
    // Read again from the file: this is also the proof that it opens and says what was meant.
    const Hdf5File written(folder_ / shard->spec.name);
    const std::vector<const Hdf5Dataset*> datasets = find_datasets(written, shard->spec);
    for (std::size_t d = 0; d < datasets.size(); ++d)
      if (datasets[d]->offset != shard->layout.offsets[d])
        throw Error(
            fmt::format("{}: {} is not where it was written; the disk or its file system "
                        "may be failing",
                        written.path().string(), shard->spec.datasets[d].path));
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
