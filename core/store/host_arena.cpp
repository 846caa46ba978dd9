#include "core/store/host_arena.h"

#include <fmt/format.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/base/host_memory.h"

namespace megatrain {

namespace {

constexpr Index kHugePage = Index{2} << 20;
constexpr Index kTouchPiece = Index{16} << 20;
constexpr Index kProgressPieces = 64;
constexpr Index kRegisterPiece = Index{16} << 30;

Index page_bytes() { return sysconf(_SC_PAGESIZE); }

template <class Work>
double seconds_of(const Work& work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

ArenaSeconds& ArenaSeconds::operator+=(const ArenaSeconds& other) {
  touch += other.touch;
  registration += other.registration;
  return *this;
}

HostArena::HostArena(std::string name, Index bytes, Device& device, ThreadPool& pool,
                     const HostArenaOptions& options)
    : name_(std::move(name)), bytes_(bytes) {
  require(bytes >= 0, "a host arena of a negative size");
  if (bytes == 0) return;
  require_host_memory(name_, bytes);
  map();
  seconds_.touch = seconds_of([&] { touch(pool, options.touched); });
  seconds_.registration = seconds_of([&] { register_with(device, options.cuts); });
}

void HostArena::Unmap::operator()(std::byte* data) const {
  munmap(data, static_cast<std::size_t>(bytes));
}

void HostArena::map() {
  const Index size = round_up(bytes_, page_bytes());
  // A huge page's worth more, so that the arena can start on one; the ends go back at once.
  const Index reserved = size + kHugePage;
  void* const address = mmap(nullptr, static_cast<std::size_t>(reserved), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    const std::string message = fmt::format("cannot map {} of host memory for {}: {}",
                                            format_bytes(size), name_, std::strerror(errno));
    if (errno == ENOMEM || errno == EAGAIN)
      throw UserError(message + "; see `ulimit -v` and /proc/sys/vm/overcommit_memory");
    throw Error(message);
  }
  auto* const begin = static_cast<std::byte*>(address);
  const auto position = static_cast<Index>(reinterpret_cast<std::uintptr_t>(begin));
  const Index front = round_up(position, kHugePage) - position;
  if (front > 0) munmap(begin, static_cast<std::size_t>(front));
  if (front < kHugePage) munmap(begin + front + size, static_cast<std::size_t>(kHugePage - front));
  mapping_ = std::unique_ptr<std::byte, Unmap>(begin + front, Unmap{size});

  // Both are wishes: a kernel without huge pages or names does without.
  madvise(data(), static_cast<std::size_t>(size), MADV_HUGEPAGE);
#ifdef PR_SET_VMA_ANON_NAME
  prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, data(), size, ("megatrain " + name_).c_str());
#endif
}

void HostArena::touch(ThreadPool& pool, const std::function<void(Index)>& touched) {
  const Index page = page_bytes();
  const Index batch = kTouchPiece * kProgressPieces;
  for (Index begin = 0; begin < bytes_; begin += batch) {
    const Index end = std::min(begin + batch, bytes_);
    pool.for_each(ceil_div(end - begin, kTouchPiece), [&](Index piece) {
      const Index first = begin + piece * kTouchPiece;
      const Index last = std::min(first + kTouchPiece, end);
      // Volatile: the store is its page fault, the value is zero already.
      for (Index i = first; i < last; i += page)
        *static_cast<volatile std::byte*>(data() + i) = std::byte{0};
    });
    if (touched) touched(end - begin);
  }
}

std::vector<Index> registration_ends(Index bytes, std::span<const Index> cuts, Index page) {
  std::vector<Index> ends;
  Index begin = 0;
  for (const Index cut : cuts) {
    if (cut - begin < kRegisterPiece || cut >= bytes || cut % page != 0) continue;
    ends.push_back(cut);
    begin = cut;
  }
  ends.push_back(bytes);
  return ends;
}

void HostArena::register_with(Device& device, std::span<const Index> cuts) {
  Index begin = 0;
  for (const Index end : registration_ends(bytes_, cuts, page_bytes())) {
    registrations_.push_back(device.register_host(data() + begin, end - begin));
    begin = end;
  }
}

}  // namespace megatrain
