#include "io/pieces.h"

#include <atomic>
#include <mutex>

namespace megatrain::io {

void run_pieces(ThreadPool& pool, Index pieces, Index total_bytes, const Progress& progress,
                const std::function<Index(Index)>& body) {
  std::mutex mutex;
  Index done = 0;
  std::atomic<bool> failed = false;
  pool.for_each(pieces, [&](Index i) {
    if (failed) return;
    try {
      const Index bytes = body(i);
      const std::lock_guard lock(mutex);
      done += bytes;
      if (progress) progress(done, total_bytes);
    } catch (...) {
      failed = true;
      throw;
    }
  });
}

}  // namespace megatrain::io
