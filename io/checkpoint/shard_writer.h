#pragma once
/// @file
/// Writes the shards of a checkpoint: HDF5 files whose values come in pieces of blocks, in any
/// order, from several threads and processes.

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/base/thread_pool.h"
#include "io/checkpoint/block_pool.h"
#include "io/checkpoint/manifest.h"
#include "io/direct_file.h"
#include "io/hdf5/hdf5_writer.h"

namespace megatrain::io {

struct ShardSpec {
  std::string name;
  std::vector<Hdf5DatasetSpec> datasets;
};

/// Bytes [first, first + bytes) of dataset `dataset` of shard `shard`; all of them in one block.
struct BlockPiece {
  std::size_t shard = 0, dataset = 0;
  Index first = 0, bytes = 0;
  [[nodiscard]] Index block() const { return first / kBlockBytes; }
};

/// The checksum of every byte of an HDF5 file that belongs to none of `datasets`.
Checksum metadata_checksum(const InputFile& file, std::span<const Hdf5Dataset* const> datasets);

/// One process makes the files and finishes them. Others may join it: each writes pieces of its own
/// and tells the maker which (written(), add()). A block that one process wrote has the checksum of
/// its bytes on their way to the disk. One that several wrote is read back: the pieces must be what
/// was written, each by the checksum that it had on its way, and then the block has that of the
/// whole.
class ShardWriter {
 public:
  /// Makes the files and claims their disk space. @throws UserError when the disk is full
  ShardWriter(const std::filesystem::path& folder, std::vector<ShardSpec> shards,
              std::span<const Hdf5Attribute> attributes, Hdf5Bf16 bf16 = Hdf5Bf16::floating);
  /// Joins the process that made them, from the same specs. @throws UserError, Error when they are
  /// not there, or others
  ShardWriter(const std::filesystem::path& folder, std::vector<ShardSpec> shards);
  ~ShardWriter();

  /// Bytes [first, last) of a dataset, cut where blocks end.
  [[nodiscard]] static std::vector<BlockPiece> cut(std::size_t shard, std::size_t dataset,
                                                   Index first, Index last);
  /// Every block there is, shard by shard in file order.
  [[nodiscard]] std::vector<BlockPiece> blocks() const;
  /// Every byte once, in any order. `data` lies in a block of a BlockPool and has as many bytes as
  /// the piece, which begins at a multiple of kDirectAlignment, and ends at one or with its
  /// dataset: so no page of the file has two writers.
  void write(const BlockPiece& piece, std::span<const std::byte> data);
  /// Makes what was written durable.
  void sync();
  /// What this process wrote, for another's add(). To be called after sync().
  [[nodiscard]] std::string written() const;
  /// What another process wrote.
  void add(std::string_view written);
  /// Syncs everything. @returns what the manifest says about the shards
  /// @param pool, blocks  to read back what has several writers
  /// @throws LogicError when a byte was not written once; Error when it is not what was written
  std::vector<ManifestShard> finish(ThreadPool& pool, BlockPool& blocks);

 private:
  struct Shard;
  /// A piece, and the checksum of its bytes as they were written.
  struct Record {
    BlockPiece piece;
    Checksum sum = 0;
  };
  using Pieces = std::span<const Record>;

  void open(std::vector<ShardSpec> shards, const std::function<void(Shard&)>& make);
  void claim_space();
  void sum_blocks(ThreadPool& pool, BlockPool& blocks);
  [[nodiscard]] Checksum read_back(Pieces pieces, BlockPool& blocks) const;
  [[nodiscard]] Checksum& checksum_of(const BlockPiece& piece);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<Shard>> shards_;
  mutable std::mutex mutex_;
  std::vector<Record> records_;
};

}  // namespace megatrain::io
