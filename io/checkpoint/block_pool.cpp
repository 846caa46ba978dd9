#include "io/checkpoint/block_pool.h"

#include <sys/mman.h>

#include <utility>

namespace megatrain::io {

BlockPool::BlockPool(Index blocks) : blocks_(blocks) {
  require(blocks > 0, "a block pool has blocks");
  const Index bytes = checked_mul(blocks, kBlockBytes);
  void* memory = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw UserError("the system gives no " + format_bytes(bytes) +
                    " for checkpoint buffers; lower --save-buffer");
  memory_ = static_cast<std::byte*>(memory);
  // Fewer page faults while the optimizer wants the memory bus; no harm where there are none.
  (void)::madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  // The first blocks are used first and again: a small model touches little.
  for (Index i = blocks - 1; i >= 0; --i) free_.push_back(memory_ + i * kBlockBytes);
}

BlockPool::~BlockPool() { ::munmap(memory_, static_cast<std::size_t>(blocks_ * kBlockBytes)); }

BlockPool::Block BlockPool::acquire() {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [&] { return !free_.empty(); });
  std::byte* data = free_.back();
  free_.pop_back();
  return {*this, data};
}

BlockPool::Block::Block(Block&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), data_(std::exchange(other.data_, nullptr)) {}

BlockPool::Block& BlockPool::Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    give_back();
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
  }
  return *this;
}

void BlockPool::Block::give_back() {
  if (pool_ == nullptr) return;
  {
    const std::lock_guard lock(pool_->mutex_);
    pool_->free_.push_back(data_);
  }
  pool_->freed_.notify_one();
  pool_ = nullptr;
}

}  // namespace megatrain::io
