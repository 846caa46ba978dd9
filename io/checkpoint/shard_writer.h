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
#include "core/model/model.h"
#include "io/checkpoint/block_pool.h"
#include "io/checkpoint/manifest.h"
#include "io/direct_file.h"
#include "io/hdf5/hdf5_writer.h"

namespace megatrain::io {

struct ShardSpec {
  std::string name;
  std::vector<Hdf5DatasetSpec> datasets;
  /// Of each dataset, the parameter of which parts are written. Empty: nothing comes in parts.
  std::vector<const ParamDesc*> params = {};
};

/// What one writer has of block `block` of dataset `dataset` of shard `shard`: bytes [first, first
/// + bytes) of part `part` of the tensor, which lie in that block in the same order
/// (ParamDesc::for_each_run). A tensor that nobody divides is its own part 0.
struct BlockPiece {
  std::size_t shard = 0, dataset = 0;
  Index block = 0;
  Index part = 0;
  Index first = 0, bytes = 0;
};

/// The checksum of every byte of an HDF5 file that belongs to none of `datasets`.
Checksum metadata_checksum(const InputFile& file, std::span<const Hdf5Dataset* const> datasets);

/// One process makes the files and finishes them. Others may join it: each writes pieces of its own
/// and tells the maker which (written(), add()). A block that one process wrote has the checksum of
/// its bytes on their way to the disk. One that several wrote is read back: the pieces must be what
/// was written, each by the checksum that it had on its way, and then the block has that of the
/// whole.
///
/// Where parts of a tensor meet inside pages, or lie in rows of the whole, the tensor is written
/// through the page cache, which puts single bytes in their place: the ranks of such parts have a
/// coherent view of the file, as processes of one machine do.
class ShardWriter {
 public:
  /// Makes the files and claims their disk space. @throws UserError when the disk is full
  ShardWriter(const std::filesystem::path& folder, std::vector<ShardSpec> shards,
              std::span<const Hdf5Attribute> attributes, Hdf5Bf16 bf16 = Hdf5Bf16::floating);
  /// Joins the process that made them, from the same specs. @throws UserError, Error when they are
  /// not there, or others
  ShardWriter(const std::filesystem::path& folder, std::vector<ShardSpec> shards);
  ~ShardWriter();

  /// Every block there is, shard by shard in file order.
  [[nodiscard]] std::vector<BlockPiece> blocks() const;
  /// Every byte once, in any order. `data` lies in a block of a BlockPool and has as many bytes as
  /// the piece. Slices of slabs are cut at multiples of kDirectAlignment: where parts do not meet
  /// inside pages, no page of the file has two writers.
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
  /// Bytes of a dataset that are side by side in a piece too.
  struct Run {
    Index begin = 0;  ///< in the dataset
    Index bytes = 0;
    std::size_t record = 0;  ///< of the pieces that a block has
  };

  void open(std::vector<ShardSpec> shards, const std::function<void(Shard&)>& make);
  void claim_space();
  [[nodiscard]] std::vector<Run> runs_of(Pieces pieces) const;
  void require_whole(const BlockPiece& block, Pieces pieces) const;
  void sum_blocks(ThreadPool& pool, BlockPool& blocks);
  [[nodiscard]] Checksum read_back(Pieces pieces, BlockPool& blocks) const;
  [[nodiscard]] Checksum& checksum_of(const BlockPiece& piece);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<Shard>> shards_;
  mutable std::mutex mutex_;
  std::vector<Record> records_;
};

}  // namespace megatrain::io
