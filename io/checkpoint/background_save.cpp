#include "io/checkpoint/background_save.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_files.h"
#include "io/checkpoint/verify.h"
#include "io/held_pieces.h"

namespace megatrain::io {

namespace {

/// Writes in flight: enough to keep a solid-state disk busy, few enough that none waits long.
constexpr int kWriters = 8;

// A slice begins at a whole page of a tensor's values, also of bf16, and each dataset at one of its
// file: no page has two writers, so none of them reads what it writes to.
static_assert(kSlabAlignment * size_of(DType::bf16) % kDirectAlignment == 0);

using Clock = std::chrono::steady_clock;

std::vector<ShardSpec> specs(const std::vector<StateShard>& layout) {
  std::vector<ShardSpec> all;
  for (const StateShard& shard : layout) {
    ShardSpec spec{shard.name, {}};
    for (const StateTensor& tensor : shard.tensors) {
      spec.datasets.push_back(dataset_spec(tensor));
      spec.params.push_back(tensor.param);
    }
    all.push_back(std::move(spec));
  }
  return all;
}

}  // namespace

BackgroundSave::BackgroundSave(const HostStore& store, SaveOptions options, BlockPool& pool,
                               int copy_threads)
    : store_(store),
      options_(std::move(options)),
      pool_(pool),
      begin_(Clock::now()),
      layout_(state_shards(store.model(), options_.shard_bytes, {.moments = store.moment_type()})),
      blocks_of_unit_(static_cast<std::size_t>(store.model().unit_count())),
      copiers_(copy_threads),
      folder_(*options_.peers, fmt::format("checkpoint of step {}", options_.step), options_.folder,
              /*replace=*/true),
      next_write_(begin_) {
  require(store.model().partition().count <= options_.peers->size(),
          "the parts of a model are saved together");
  open_files();
  if (options_.writes) pack_units();
  report_.bytes = state_bytes(store.model(), store.moment_type());
  units_to_come_ = store.model().unit_count();
  for (int i = 0; i < kWriters; ++i) writers_.emplace_back([this] { write_blocks(); });
  finisher_ = std::thread([this] { finish(); });
}

void BackgroundSave::open_files() {
  const auto join = [this] {
    shards_ = std::make_unique<ShardWriter>(folder_.path(), specs(layout_));
  };
  folder_.begin(
      [this] {
        shards_ = std::make_unique<ShardWriter>(folder_.path(), specs(layout_),
                                                root_attributes(options_.step));
      },
      options_.writes ? join : JointFolder::Act());
}

void BackgroundSave::pack_units() {
  std::vector<std::vector<BlockPiece>> pieces(blocks_of_unit_.size());
  for (std::size_t s = 0; s < layout_.size(); ++s)
    for (std::size_t t = 0; t < layout_[s].tensors.size(); ++t) {
      const StateTensor& tensor = layout_[s].tensors[t];
      const Index width = size_of(tensor.type);
      for (const HeldPiece& piece : held_pieces(
               *tensor.param, written_by(store_, tensor.unit, *tensor.param), kBlockBytes / width))
        pieces[static_cast<std::size_t>(tensor.unit)].push_back(
            {.shard = s,
             .dataset = t,
             .block = piece.block,
             .part = store_.model().partition().index,
             .first = piece.first * width,
             .bytes = piece.count * width});
    }
  for (std::size_t unit = 0; unit < pieces.size(); ++unit) {
    blocks_of_unit_[unit] = pack_blocks(std::move(pieces[unit]));
    blocks_to_write_ += std::ssize(blocks_of_unit_[unit]);
  }
}

BackgroundSave::~BackgroundSave() {
  {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
  }
  changed_.notify_all();
  finisher_.join();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& writer : writers_) writer.join();
}

void BackgroundSave::unit(Index unit) noexcept {
  try {
    const auto& blocks = blocks_of_unit_[static_cast<std::size_t>(unit)];
    copiers_.for_each(std::ssize(blocks),
                      [&](Index i) { copy_out(blocks[static_cast<std::size_t>(i)]); });
  } catch (...) {
    fail(std::current_exception());
  }
  const std::lock_guard lock(mutex_);
  --units_to_come_;
  // Under the lock: whoever waits for the last unit may end this object's life.
  changed_.notify_all();
}

void BackgroundSave::copy_out(const PackedBlock& packed) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
  }
  Filled filled{&packed, pool_.acquire()};
  for (std::size_t i = 0; i < packed.pieces.size(); ++i) {
    const BlockPiece& piece = packed.pieces[i];
    const StateTensor& tensor = layout_[piece.shard].tensors[piece.dataset];
    read_state(store_, tensor, piece.first / size_of(tensor.type),
               filled.block.bytes().subspan(static_cast<std::size_t>(packed.offsets[i]),
                                            static_cast<std::size_t>(piece.bytes)));
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(filled));
  }
  changed_.notify_all();
}

void BackgroundSave::write_blocks() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Filled filled = std::move(queue_.front());
    queue_.pop_front();
    // After a failure blocks only go back to the pool, so that nobody waits for one.
    if (failure_) continue;
    lock.unlock();
    std::exception_ptr failure;
    try {
      pace(filled.packed->filled);
      for (std::size_t i = 0; i < filled.packed->pieces.size(); ++i) {
        const BlockPiece& piece = filled.packed->pieces[i];
        shards_->write(
            piece, filled.block.bytes().subspan(static_cast<std::size_t>(filled.packed->offsets[i]),
                                                static_cast<std::size_t>(piece.bytes)));
      }
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure) fail(failure);
    lock.lock();
    if (--blocks_to_write_ == 0) changed_.notify_all();
  }
}

void BackgroundSave::pace(Index bytes) {
  if (options_.bytes_per_second <= 0) return;
  const std::chrono::duration<double> cost(static_cast<double>(bytes) /
                                           static_cast<double>(options_.bytes_per_second));
  Clock::time_point turn;
  {
    const std::lock_guard lock(mutex_);
    turn = std::max(next_write_, Clock::now());
    next_write_ = turn + std::chrono::duration_cast<Clock::duration>(cost);
    turn = next_write_;
  }
  std::this_thread::sleep_until(turn);
}

void BackgroundSave::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  changed_.notify_all();
}

void BackgroundSave::finish() {
  std::unique_lock lock(mutex_);
  const auto given_up = [&] { return given_up_ && units_to_come_ > 0; };
  // Once the last unit is here, the threads that copied it are free to read back.
  const auto through = [&] { return units_to_come_ == 0 && blocks_to_write_ == 0; };
  changed_.wait(lock, [&] { return failure_ || through() || given_up(); });
  if (given_up() && !failure_)
    failure_ = std::make_exception_ptr(
        Error(fmt::format("the checkpoint {} was given up", options_.folder.string())));
  std::exception_ptr failure = failure_;
  lock.unlock();
  try {
    publish(failure);
    failure = nullptr;
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  failure_ = failure;
  report_.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  finished_ = true;
  lock.unlock();
  changed_.notify_all();
}

void BackgroundSave::publish(const std::exception_ptr& failure) {
  const std::vector<std::string> written = folder_.agree("written", [&]() -> std::string {
    if (failure) std::rethrow_exception(failure);
    if (!options_.writes) return {};
    if (folder_.leads()) return {};  // finish() knows, and syncs
    shards_->sync();
    return shards_->written();
  });
  folder_.commit([&] {
    for (const std::string& pieces : written) shards_->add(pieces);
    Manifest manifest;
    manifest.step = options_.step;
    manifest.block_bytes = kBlockBytes;
    manifest.shards = shards_->finish(copiers_, pool_);
    manifest.aliases = tied_names(store_.model());
    write_checkpoint_files(folder_.path(), options_.files, manifest);
    if (options_.read_back) verify_values(Checkpoint(folder_.path()), pool_, copiers_);
  });
  if (!options_.published || !folder_.leads()) return;
  try {
    options_.published();
  } catch (const Error& error) {
    report_.remark = error.what();
  }
}

bool BackgroundSave::done() const {
  const std::lock_guard lock(mutex_);
  return finished_ && units_to_come_ == 0;
}

SaveReport BackgroundSave::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ && units_to_come_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
  return report_;
}

}  // namespace megatrain::io
