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

  /// Visits the bytes of a piece as runs of the dataset.
  template <class Visit>
  void for_each_run(const BlockPiece& piece, const Visit& visit) const {
    if (spec.params.empty()) return visit(piece.first, piece.bytes);
    const ParamDesc& param = *spec.params[piece.dataset];
    const Index width = bits_of(spec.datasets[piece.dataset].type) / 8;
    param.for_each_run({param.partition.count, piece.part}, piece.first / width,
                       piece.bytes / width,
                       [&](const PartRun& run) { visit(run.whole * width, run.count * width); });
  }
  /// Whether parts of the dataset meet inside pages, or have rows of it that are worth no transfer
  /// of their own beside the page cache.
  [[nodiscard]] bool shares_pages(std::size_t dataset) const {
    if (spec.params.empty()) return false;
    const ParamDesc& param = *spec.params[dataset];
    if (!param.shard.divided() || param.partition.count == 1) return false;
    if (param.shard.dimension > 0) return true;
    const Index row = manifest.datasets[dataset].bytes() / param.whole_shape.front();
    return std::ranges::any_of(param.shard.groups, [&](Index rows) {
      const bool last = &rows == &param.shard.groups.back();
      return ceil_div(rows, param.partition.count) * row % kDirectAlignment != 0 ||
             (!last && rows * row % kDirectAlignment != 0);
    });
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

std::vector<BlockPiece> ShardWriter::blocks() const {
  std::vector<BlockPiece> all;
  for (std::size_t s = 0; s < shards_.size(); ++s)
    for (std::size_t d = 0; d < shards_[s]->manifest.datasets.size(); ++d) {
      const Index bytes = shards_[s]->manifest.datasets[d].bytes();
      for (Index first = 0; first < bytes; first += kBlockBytes)
        all.push_back({.shard = s,
                       .dataset = d,
                       .block = first / kBlockBytes,
                       .first = first,
                       .bytes = std::min(kBlockBytes, bytes - first)});
    }
  return all;
}

void ShardWriter::write(const BlockPiece& piece, std::span<const std::byte> data) {
  require(std::ssize(data) == piece.bytes, "a piece is written whole");
  Shard& shard = *shards_[piece.shard];
  const Index offset = shard.layout.offsets[piece.dataset];
  const Index all = shard.manifest.datasets[piece.dataset].bytes();
  const bool cached = shard.shares_pages(piece.dataset);
  const Checksum sum = checksum(data);
  Index first = all, last = 0;
  shard.for_each_run(piece, [&](Index begin, Index bytes) {
    const auto run = data.first(static_cast<std::size_t>(bytes));
    data = data.subspan(run.size());
    first = std::min(first, begin);
    last = begin + bytes;
    if (cached) return shard.file->write_cached(offset + begin, run);
    require(last % kDirectAlignment == 0 || last == all, "a page of a file has one writer");
    shard.file->write(offset + begin, run);
  });
  require(data.empty(), "a piece holds no padding");
  // Pages stay in the cache: what another writer still has for them would have to wait for a read.
  if (cached) shard.file->begin_writing(offset + first, last - first);
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
  const auto block_of = [](const BlockPiece& piece) {
    return std::tuple(piece.shard, piece.dataset, piece.block);
  };
  std::ranges::sort(records_, {}, [&](const Record& record) { return block_of(record.piece); });
  std::vector<Pieces> cut_blocks;
  Pieces left(records_);
  for (const BlockPiece& block : this->blocks()) {
    std::size_t count = 0;
    while (count < left.size() && block_of(left[count].piece) == block_of(block)) ++count;
    require_whole(block, left.first(count));
    if (count == 1)
      checksum_of(block) = left.front().sum;
    else
      cut_blocks.push_back(left.first(count));
    left = left.subspan(count);
  }
  require(left.empty(), "what is written lies in a block of a shard");
  pool.for_each(std::ssize(cut_blocks), [&](Index i) {
    const Pieces pieces = cut_blocks[static_cast<std::size_t>(i)];
    checksum_of(pieces.front().piece) = read_back(pieces, blocks);
  });
}

Checksum& ShardWriter::checksum_of(const BlockPiece& piece) {
  return shards_[piece.shard]->manifest.datasets[piece.dataset].blocks[static_cast<std::size_t>(
      piece.block)];
}

std::vector<ShardWriter::Run> ShardWriter::runs_of(Pieces pieces) const {
  std::vector<Run> runs;
  for (std::size_t record = 0; record < pieces.size(); ++record)
    shards_[pieces[record].piece.shard]->for_each_run(
        pieces[record].piece,
        [&](Index begin, Index bytes) { runs.push_back({begin, bytes, record}); });
  return runs;
}

/// Pieces of a block hold each of its bytes once.
void ShardWriter::require_whole(const BlockPiece& block, Pieces pieces) const {
  std::vector<Run> runs = runs_of(pieces);
  std::ranges::sort(runs, {}, &Run::begin);
  Index end = block.first;
  for (const Run& run : runs) {
    require(run.begin == end, "every byte of a shard is written once");
    end += run.bytes;
  }
  require(end == block.first + block.bytes, "every block of a shard is written");
}

Checksum ShardWriter::read_back(Pieces pieces, BlockPool& blocks) const {
  const BlockPiece& front = pieces.front().piece;
  const Shard& shard = *shards_[front.shard];
  const Index first = front.block * kBlockBytes;
  const Index bytes = std::min(kBlockBytes, shard.manifest.datasets[front.dataset].bytes() - first);
  const BlockPool::Block block = blocks.acquire();
  const auto whole_pages = static_cast<std::size_t>(round_up(bytes, kDirectAlignment));
  const Index read = shard.file->read(shard.layout.offsets[front.dataset] + first,
                                      block.bytes().first(whole_pages));
  const auto found = block.bytes().first(static_cast<std::size_t>(std::min(read, bytes)));
  std::vector<ChecksumStream> sums(pieces.size());
  const std::vector<Run> runs = runs_of(pieces);
  for (const Run& run : runs) {
    const auto begin = static_cast<std::size_t>(run.begin - first);
    if (begin < found.size())
      sums[run.record].add(found.subspan(
          begin, std::min(static_cast<std::size_t>(run.bytes), found.size() - begin)));
  }
  for (std::size_t record = 0; record < pieces.size(); ++record) {
    if (sums[record].value() == pieces[record].sum) continue;
    const auto of_record = [&](const Run& run) { return run.record == record; };
    const auto begin = std::ranges::find_if(runs, of_record);
    const auto last = std::ranges::find_if(runs.rbegin(), runs.rend(), of_record);
    throw Error(fmt::format(
        "{}: bytes {} to {} of {} are not what was written there{}; the disk or its "
        "file system may be failing, or not be the same for all ranks",
        shard.file->path().string(), begin->begin, last->begin + last->bytes,
        shard.spec.datasets[front.dataset].path,
        shard.shares_pages(front.dataset) ? fmt::format(" by part {}", pieces[record].piece.part)
                                          : ""));
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
