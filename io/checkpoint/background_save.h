#pragma once
/// @file
/// Writes a checkpoint while training goes on.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/engine/state_reader.h"
#include "io/atomic_file.h"
#include "io/checkpoint/block_pool.h"
#include "io/checkpoint/shard_writer.h"
#include "io/checkpoint/state_layout.h"
#include "io/hf_folder.h"

namespace megatrain::io {

struct SaveOptions {
  std::filesystem::path folder;  ///< appears whole or not at all; an existing one gives way
  Index step = 0;
  std::vector<SideFile> files = {};      ///< stored beside the shards
  Index shard_bytes = Index{16} << 30;   ///< a shard ends before the unit that would pass it
  Index bytes_per_second = 0;            ///< write no faster; 0: as fast as the disk goes
  bool read_back = false;                ///< read everything again before it is published
  std::function<void()> published = {};  ///< called once it is, by a thread of the save
};

/// What a finished save did.
struct SaveReport {
  Index bytes = 0;     ///< of all shards
  double seconds = 0;  ///< from the beginning until it was published
};

/// One save. Units are handed over as they become final (StateReader); their bytes are copied into
/// blocks of the pool and written from there by threads of its own, so a unit is held only until
/// its copy is made: with a large pool at the speed of memory, with a small one at the disk's.
/// After the last unit the files are synced, the manifest is written, and the folder is published.
class BackgroundSave final : public StateReader {
 public:
  /// Makes the files and claims their disk space.
  /// @param store, pool  must outlive the save
  /// @throws UserError when the disk is full
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
  /// A block on its way to the disk.
  struct Filled {
    BlockId id;
    BlockPool::Block block;
  };
  void copy_out(const BlockId& id);
  void write_blocks();
  void pace(Index bytes);
  void finish();
  void publish();
  void fail(std::exception_ptr failure);

  const HostStore& store_;
  SaveOptions options_;
  BlockPool& pool_;
  std::chrono::steady_clock::time_point begin_;
  std::vector<StateShard> layout_;
  std::vector<std::vector<BlockId>> blocks_of_unit_;
  ThreadPool copiers_;
  AtomicFolder folder_;
  ShardWriter shards_;

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
