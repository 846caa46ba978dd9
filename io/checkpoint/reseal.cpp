#include "io/checkpoint/reseal.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "io/checkpoint/checkpoint_files.h"
#include "io/checkpoint/shard_writer.h"
#include "io/checkpoint/state_match.h"
#include "io/checkpoint/verify.h"
#include "io/text.h"

namespace megatrain::io {

namespace fs = std::filesystem;

namespace {

/// A shard as it is, and what the manifest will say about it.
struct OpenShard {
  std::unique_ptr<Hdf5File> file;
  std::vector<const Hdf5Dataset*> datasets;  ///< of the manifest's datasets
  ManifestShard entry;
};

/// Everything about a shard but the checksums of its values.
OpenShard open_shard(const fs::path& path, const ManifestShard& before, Index block_bytes) {
  // What other tools wrote shall be on the disk before it is called whole.
  DirectFile(path, DirectFile::Mode::write).sync();
  OpenShard shard;
  shard.file = std::make_unique<Hdf5File>(path);
  shard.entry.name = before.name;
  for (const ManifestDataset& old : before.datasets) {
    const Hdf5Dataset* dataset = shard.file->find(old.path);
    if (dataset == nullptr)
      throw UserError(fmt::format("{}: dataset {} is missing", path.string(), quote(old.path)));
    if (!dataset->refusal.empty())
      throw UserError(fmt::format("{}: dataset {} cannot be read: {}", path.string(),
                                  quote(old.path), dataset->refusal));
    check_state_format(path, *dataset);
    shard.datasets.push_back(dataset);
    ManifestDataset entry{old.path, dataset->type, dataset->shape, {}};
    entry.blocks.resize(static_cast<std::size_t>(ceil_div(entry.bytes(), block_bytes)));
    shard.entry.datasets.push_back(std::move(entry));
  }
  const std::set<const Hdf5Dataset*> known(shard.datasets.begin(), shard.datasets.end());
  for (const Hdf5Dataset& dataset : shard.file->datasets())
    if (!known.contains(&dataset))
      throw UserError(fmt::format("{}: {} was not there when the checkpoint was written",
                                  path.string(), quote(dataset.path)));
  shard.entry.bytes = shard.file->bytes();
  shard.entry.metadata = metadata_checksum(InputFile(path), shard.datasets);
  return shard;
}

void compute_checksums(std::vector<OpenShard>& shards, Index block_bytes, ThreadPool& pool,
                       const Progress& progress) {
  struct Piece {
    const Hdf5File* file;
    const Hdf5Dataset* dataset;
    Index first;
    Checksum* result;
  };
  std::vector<Piece> pieces;
  Index total = 0;
  for (OpenShard& shard : shards)
    for (std::size_t d = 0; d < shard.datasets.size(); ++d) {
      total += shard.datasets[d]->bytes;
      Index first = 0;
      for (Checksum& block : shard.entry.datasets[d].blocks) {
        pieces.push_back({shard.file.get(), shard.datasets[d], first, &block});
        first += block_bytes;
      }
    }
  BlockPool blocks(std::min<Index>(pool.threads(), 8));
  run_pieces(pool, std::ssize(pieces), total, progress, [&](Index i) {
    const auto& [file, dataset, first, result] = pieces[static_cast<std::size_t>(i)];
    const BlockPool::Block block = blocks.acquire();
    const auto bytes = static_cast<std::size_t>(std::min(block_bytes, dataset->bytes - first));
    file->read(*dataset, first, block.bytes().first(bytes));
    *result = checksum(block.bytes().first(bytes));
    return static_cast<Index>(bytes);
  });
}

std::vector<ResealedItem> changes(const Manifest& before, const Manifest& after) {
  std::vector<ResealedItem> items;
  for (std::size_t f = 0; f < before.files.size(); ++f)
    if (before.files[f] != after.files[f]) items.push_back({before.files[f].name, {}});
  for (std::size_t s = 0; s < before.shards.size(); ++s) {
    const ManifestShard& was = before.shards[s];
    const ManifestShard& is = after.shards[s];
    if (was.metadata != is.metadata || was.bytes != is.bytes) items.push_back({was.name, {}});
    for (std::size_t d = 0; d < was.datasets.size(); ++d)
      if (was.datasets[d] != is.datasets[d]) items.push_back({was.name, was.datasets[d].path});
  }
  return items;
}

}  // namespace

std::vector<ResealedItem> reseal(const fs::path& folder, ThreadPool& pool,
                                 const Progress& progress) {
  // The marker does not fit when an earlier attempt ended between manifest and marker.
  const Manifest before = read_manifest(folder, false);
  Manifest after = before;
  const auto read = [&](std::string_view name) {
    return read_whole_file(folder / name, kLargestSideFile);
  };
  for (ManifestFile& file : after.files) {
    const std::string content = read(file.name);
    file = {file.name, std::ssize(content), checksum(content)};
  }
  std::vector<OpenShard> shards;
  for (ManifestShard& shard : after.shards) {
    shards.push_back(open_shard(folder / shard.name, shard, after.block_bytes));
    shard = shards.back().entry;
  }
  (void)check_contents(after, folder, read);
  compute_checksums(shards, after.block_bytes, pool, progress);
  for (std::size_t s = 0; s < shards.size(); ++s) after.shards[s] = shards[s].entry;
  write_manifest(folder, after);
  return changes(before, after);
}

}  // namespace megatrain::io
