#pragma once
/// @file
/// Writes a checkpoint while training goes on.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/engine/state_reader.h"
#include "io/checkpoint/block_packing.h"
#include "io/checkpoint/block_pool.h"
#include "io/checkpoint/shard_writer.h"
#include "io/checkpoint/state_layout.h"
#include "io/hf_folder.h"
#include "io/joint_folder.h"

namespace megatrain::io {

struct SaveOptions {
  std::filesystem::path folder;  ///< appears whole or not at all; an existing one gives way
  Index step = 0;
  std::vector<SideFile> files = {};     ///< stored beside the shards
  Index shard_bytes = Index{16} << 30;  ///< a shard ends before the unit that would pass it
  Index bytes_per_second = 0;           ///< this rank writes no faster; 0: as fast as the disk goes
  bool read_back = false;               ///< read everything again before it is published
  /// Called once it is, on rank 0, by a thread of the save.
  std::function<void()> published = {};
  Peers* peers = &Peers::alone();  ///< who save together; must outlive the save
  /// Whether this rank writes what its store holds. Every element has one rank that writes it;
  /// what each part of a model holds the whole of, the first part writes.
  bool writes = true;
};

/// What a finished save did.
struct SaveReport {
  Index bytes = 0;          ///< of all shards, whoever wrote them
  double seconds = 0;       ///< from the beginning until it was published
  std::string remark = {};  ///< what went wrong afterwards, in SaveOptions::published
};

/// One save. Units are handed over as they become final (StateReader); their bytes are copied into
/// blocks of the pool and written from there by threads of its own, so a unit is held only until
/// its copy is made: with a large pool at the speed of memory, with a small one at the disk's.
/// After the last unit the files are synced, the manifest is written, and the folder is published.
///
/// Several ranks write one checkpoint together, each the slices or the part of the model that its
/// store holds, and what comes out is what one rank would write. All begin it at the same step
/// boundary and hand over their own units; what goes wrong on one of them, all report.
class BackgroundSave final : public StateReader {
 public:
  /// Makes the files and claims their disk space: all ranks meet here.
  /// @param store, pool  must outlive the save
  /// @throws UserError when the disk is full, on all ranks
  BackgroundSave(const HostStore& store, SaveOptions options, BlockPool& pool, int copy_threads);
  /// Waits when every unit was handed over; else gives the save up and leaves nothing.
  ~BackgroundSave() override;
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  void unit(Index unit) noexcept override;

  /// Every unit was handed over, and the checkpoint is published or has failed.
  [[nodiscard]] bool done() const;
  /// Waits until done. @throws what went wrong
  SaveReport wait();
  [[nodiscard]] const SaveOptions& options() const { return options_; }

 private:
  /// Pieces on their way to the disk.
  struct Filled {
    const PackedBlock* packed = nullptr;
    BlockPool::Block block;
  };
  void open_files();
  void pack_units();
  void copy_out(const PackedBlock& packed);
  void write_blocks();
  void pace(Index bytes);
  void finish();
  void publish(const std::exception_ptr& failure);
  void fail(std::exception_ptr failure);

  const HostStore& store_;
  SaveOptions options_;
  BlockPool& pool_;
  std::chrono::steady_clock::time_point begin_;
  std::vector<StateShard> layout_;
  std::vector<std::vector<PackedBlock>> blocks_of_unit_;
  ThreadPool copiers_;
  JointFolder folder_;
  std::unique_ptr<ShardWriter> shards_;  ///< on ranks that make the files, or write

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Filled> queue_;
  Index units_to_come_ = 0, blocks_to_write_ = 0;
  bool given_up_ = false;
  bool stopping_ = false;
  bool finished_ = false;
  std::exception_ptr failure_;
  SaveReport report_;
  std::chrono::steady_clock::time_point next_write_;  ///< of the pace
  std::vector<std::thread> writers_;
  std::thread finisher_;
};

}  // namespace megatrain::io
