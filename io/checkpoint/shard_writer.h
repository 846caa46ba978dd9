#pragma once
/// @file
/// Writes the shards of a checkpoint: HDF5 files whose values come in blocks, in any order, from
/// several threads.

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/block_pool.h"
#include "io/checkpoint/manifest.h"
#include "io/direct_file.h"
#include "io/hdf5/hdf5_writer.h"

namespace megatrain::io {

struct ShardSpec {
  std::string name;
  std::vector<Hdf5DatasetSpec> datasets;
};

/// A piece of a dataset: block `block` of dataset `dataset` of shard `shard`.
struct BlockId {
  std::size_t shard = 0, dataset = 0;
  Index block = 0;
};

/// The checksum of every byte of an HDF5 file that belongs to none of `datasets`.
Checksum metadata_checksum(const InputFile& file, std::span<const Hdf5Dataset* const> datasets);

class ShardWriter {
 public:
  /// Makes the files and claims their disk space. @throws UserError when the disk is full
  ShardWriter(const std::filesystem::path& folder, std::vector<ShardSpec> shards,
              std::span<const Hdf5Attribute> attributes, Hdf5Bf16 bf16 = Hdf5Bf16::floating);
  ~ShardWriter();

  /// Every block once, in any order. `data` lies in a block of a BlockPool and has as many bytes as
  /// block_bytes(id).
  void write(const BlockId& id, std::span<const std::byte> data);
  [[nodiscard]] Index block_bytes(const BlockId& id) const;
  /// Every block there is, shard by shard in file order.
  [[nodiscard]] std::vector<BlockId> blocks() const;
  /// Syncs everything. @returns what the manifest says about the shards
  /// @throws LogicError when a block was not written
  std::vector<ManifestShard> finish();

 private:
  struct Shard;
  void claim_space();
  std::filesystem::path folder_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace megatrain::io
