#include "launcher/session/measure/disk.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <system_error>

#include "core/base/thread_pool.h"
#include "io/atomic_file.h"
#include "io/checkpoint/block_pool.h"
#include "io/direct_file.h"
#include "launcher/session/measure/timing.h"

namespace megatrain::launcher {

namespace {

/// An empty file that goes with its owner.
class ScratchFile {
 public:
  explicit ScratchFile(std::filesystem::path path) : path_(std::move(path)) {
    io::write_file(path_, "");
  }
  ~ScratchFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

 private:
  std::filesystem::path path_;
};

}  // namespace

double measure_disk(const std::filesystem::path& folder) {
  constexpr int kWriters = 8;
  constexpr Index kMostBlocks = (Index{2} << 30) / io::kBlockBytes;
  constexpr double kDiskSeconds = 2;
  const std::filesystem::path path =
      folder / fmt::format("megatrain-bench-{}.tmp", static_cast<long>(::getpid()));
  const ScratchFile scratch(path);
  io::DirectFile file(path, io::DirectFile::Mode::write);
  io::BlockPool blocks(kWriters);
  ThreadPool writers(kWriters);
  // In rounds, until the time is up: each leaves the file where the next one goes on.
  double seconds = 0;
  Index written = 0;
  while (written < kMostBlocks && seconds < kDiskSeconds) {
    const double begin = seconds_now();
    constexpr Index kRound = Index{4} * kWriters;
    writers.for_each(kRound, [&](Index i) {
      const io::BlockPool::Block block = blocks.acquire();
      // Bytes that no disk can make short.
      std::mt19937_64 random(static_cast<std::uint64_t>(written + i));
      for (std::size_t at = 0; at < block.bytes().size(); at += 4096) {
        const std::uint64_t value = random();
        std::memcpy(block.bytes().data() + at, &value, sizeof(value));
      }
      file.write((written + i) * io::kBlockBytes, block.bytes());
    });
    written += kRound;
    seconds += seconds_now() - begin;
  }
  const double begin = seconds_now();
  file.sync();
  seconds += seconds_now() - begin;
  return static_cast<double>(written * io::kBlockBytes) / seconds;
}

}  // namespace megatrain::launcher
