#include "io/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "tests/io/io_test_support.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;

/// Memory at a page's start.
class Pages {
 public:
  explicit Pages(Index bytes)
      : memory_(std::aligned_alloc(kDirectAlignment,
                                   static_cast<std::size_t>(round_up(bytes, kDirectAlignment))),
                &std::free) {}
  std::span<std::byte> first(Index bytes) const {
    return {static_cast<std::byte*>(memory_.get()), static_cast<std::size_t>(bytes)};
  }
  std::span<const std::byte> with(std::string_view text) const {
    std::memcpy(memory_.get(), text.data(), text.size());
    return first(static_cast<Index>(text.size()));
  }

 private:
  std::unique_ptr<void, decltype(&std::free)> memory_;
};

std::string pattern(Index bytes, Index seed) {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(i * 5 + i / 251 + static_cast<std::size_t>(seed));
  return text;
}

/// Pages of a file that lie in the cache.
Index cached_bytes(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto bytes = static_cast<std::size_t>(fs::file_size(path));
  void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  std::vector<unsigned char> pages(bytes / kDirectAlignment + 1);
  ::mincore(mapped, bytes, pages.data());
  ::munmap(mapped, bytes);
  Index cached = 0;
  for (const unsigned char page : pages) cached += (page & 1) * kDirectAlignment;
  return cached;
}

/// On the disk and in memory, beside the cache (where that can be) and through it.
struct Place {
  const char* name;
  fs::path parent;
  bool direct;
};
std::ostream& operator<<(std::ostream& stream, const Place& place) { return stream << place.name; }

class DirectFileTest : public testing::TestWithParam<Place> {
 protected:
  DirectFile open(DirectFile::Mode mode) const { return {path_, mode, GetParam().direct}; }

  TemporaryFolder folder_{GetParam().parent};
  fs::path path_ = folder_ / "file";
};

TEST_P(DirectFileTest, WritesAndReadsLikeAnyOther) {
  for (const Index size : {Index{0}, Index{1}, Index{4095}, Index{4096}, Index{4097}, Index{8192},
                           Index{100'000}, Index{(1 << 20) + 13}}) {
    for (const Index offset : {Index{0}, Index{4096}, Index{40'960}}) {
      const std::string around = pattern(2'000'000, 3), text = pattern(size, size);
      put_file(path_, around);
      const Pages memory(round_up(size, kDirectAlignment) + kDirectAlignment);
      {
        DirectFile file = open(DirectFile::Mode::write);
        EXPECT_EQ(file.bytes(), 2'000'000);
        file.write(offset, memory.with(text));
        file.sync();
      }
      std::string expected = around;
      expected.replace(static_cast<std::size_t>(offset), text.size(), text);
      ASSERT_TRUE(get_file(path_) == expected) << size << " at " << offset;
      const DirectFile file = open(DirectFile::Mode::read);
      const auto out = memory.first(round_up(size, kDirectAlignment));
      ASSERT_EQ(file.read(offset, out), static_cast<Index>(out.size()));
      ASSERT_EQ(std::memcmp(out.data(), text.data(), text.size()), 0) << size << " at " << offset;
    }
  }
}

TEST_P(DirectFileTest, ReadsEndWithTheFileAndWritesExtendIt) {
  for (const Index size : {Index{0}, Index{1}, Index{4096}, Index{10'000}}) {
    const std::string text = pattern(size, 1);
    put_file(path_, text);
    const Pages memory(65'536);
    const DirectFile file = open(DirectFile::Mode::read);
    ASSERT_EQ(file.read(0, memory.first(65'536)), size);
    EXPECT_EQ(std::memcmp(memory.first(size).data(), text.data(), text.size()), 0);
    EXPECT_EQ(file.read(round_up(size, kDirectAlignment), memory.first(4096)), 0);
    EXPECT_EQ(file.read(Index{1} << 40, memory.first(4096)), 0);
  }
  put_file(path_, "x");
  const Pages memory(10'000);
  const std::string text = pattern(10'000, 2);
  open(DirectFile::Mode::write).write(8192, memory.with(text));
  std::string expected(8192, '\0');
  expected[0] = 'x';
  EXPECT_TRUE(get_file(path_) == expected.append(text));
}

TEST_P(DirectFileTest, ThreadsWriteAndReadDifferentParts) {
  constexpr Index kPart = 300'000, kDistance = 303'104;
  put_file(path_, "");
  fs::resize_file(path_, 8 * kDistance);
  DirectFile file = open(DirectFile::Mode::write);
  const DirectFile reader = open(DirectFile::Mode::read);
  std::vector<std::thread> threads;
  for (Index i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      const Pages memory(kDistance);
      const std::string text = pattern(kPart, i);
      file.write(i * kDistance, memory.with(text));
      EXPECT_EQ(reader.read(i * kDistance, memory.first(kDistance)), kDistance);
      EXPECT_EQ(std::memcmp(memory.first(kPart).data(), text.data(), text.size()), 0);
    });
  for (std::thread& thread : threads) thread.join();
  file.sync();
  const std::string content = get_file(path_);
  for (Index i = 0; i < 8; ++i)
    EXPECT_TRUE(content.substr(static_cast<std::size_t>(i * kDistance), kPart) ==
                pattern(kPart, i));
}

/// Rows of four writers, each with a file of its own, and whole pages right behind them.
TEST_P(DirectFileTest, SeveralWriteTheSamePagesThroughTheCache) {
  constexpr Index kRun = 100, kRows = 1024, kWriters = 4;
  constexpr Index kShared = kRun * kWriters * kRows;
  static_assert(kShared % kDirectAlignment == 0);
  const std::string expected = pattern(2 * kShared, 7);
  put_file(path_, "");
  fs::resize_file(path_, 2 * kShared);
  std::vector<std::thread> threads;
  for (Index writer = 0; writer < kWriters; ++writer)
    threads.emplace_back([&, writer] {
      DirectFile file = open(DirectFile::Mode::write);
      const auto bytes = std::as_bytes(std::span(expected));
      for (Index row = 0; row < kRows; ++row) {
        const Index at = (row * kWriters + writer) * kRun;
        file.write_cached(at, bytes.subspan(static_cast<std::size_t>(at), kRun));
        file.begin_writing(at, kRun);
      }
      constexpr Index kOwn = kShared / kWriters;
      const Index own = kShared + writer * kOwn;
      const Pages memory(kOwn);
      file.write(
          own, memory.with(std::string_view(expected).substr(static_cast<std::size_t>(own), kOwn)));
      file.sync();
    });
  for (std::thread& thread : threads) thread.join();
  const Pages memory(2 * kShared);
  EXPECT_EQ(open(DirectFile::Mode::read).read(0, memory.first(2 * kShared)), 2 * kShared);
  EXPECT_EQ(std::memcmp(memory.first(2 * kShared).data(), expected.data(), expected.size()), 0);
}

TEST_P(DirectFileTest, LeavesThePageCacheAlone) {
  struct statfs system{};
  ASSERT_EQ(::statfs(folder_.path().c_str(), &system), 0);
  constexpr long kTmpfs = 0x01021994;
  if (system.f_type == kTmpfs) GTEST_SKIP() << "a file in memory is in the cache";
  constexpr Index kBytes = 8 << 20;
  put_file(path_, "");
  fs::resize_file(path_, kBytes + 100);
  const Pages memory(kBytes + 100);
  {
    DirectFile file = open(DirectFile::Mode::write);
    file.write(0, memory.with(pattern(kBytes + 100, 1)));
    EXPECT_LE(cached_bytes(path_), kBytes / 8);
    file.sync();
  }
  const DirectFile file = open(DirectFile::Mode::read);
  file.read(0, memory.first(kBytes));
  EXPECT_LE(cached_bytes(path_), kBytes / 8);
}

TEST_P(DirectFileTest, ReserveKeepsWhatIsThere) {
  const std::string text = pattern(10'000, 1);
  put_file(path_, text);
  DirectFile file = open(DirectFile::Mode::write);
  file.reserve(1 << 20);
  file.reserve(0);
  struct stat status{};
  ::stat(path_.c_str(), &status);
  EXPECT_GE(status.st_blocks * 512, 1 << 20);
  EXPECT_TRUE(get_file(path_) == text);
  expect_user_error([&] { file.reserve(Index{1} << 60); },
                    {path_.string(), "reserve 1048576.00 TiB"});
}

TEST_P(DirectFileTest, AFullDiskIsAUserError) {
  put_file(path_, "");
  const Pages memory(65'536);
  const FileSizeLimit limit(10'000);
  expect_user_error(
      [&] { open(DirectFile::Mode::write).write(0, memory.with(pattern(65'536, 1))); },
      {path_.string(), "size limit"});
}

TEST_P(DirectFileTest, NamesWhatCannotBeOpened) {
  using Mode = DirectFile::Mode;
  for (const Mode mode : {Mode::read, Mode::write})
    expect_user_error([&] { open(mode); }, {path_.string(), "No such file"});
  expect_user_error([&] { DirectFile(folder_.path(), Mode::read); }, {"not a regular file"});
  expect_user_error([&] { DirectFile(folder_.path(), Mode::write); }, {"Is a directory"});
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  for (const Mode mode : {Mode::read, Mode::write})
    expect_user_error([&] { open(mode); }, {"not a regular file"});
}

TEST_P(DirectFileTest, AsksForAlignment) {
  put_file(path_, pattern(10'000, 1));
  DirectFile file = open(DirectFile::Mode::write);
  const Pages memory(8192);
  EXPECT_THROW(file.write(512, memory.first(4096)), LogicError);
  EXPECT_THROW(file.write(-4096, memory.first(4096)), LogicError);
  EXPECT_THROW(file.write(0, memory.first(8192).subspan(8)), LogicError);
  EXPECT_THROW(file.read(512, memory.first(4096)), LogicError);
  EXPECT_THROW(file.read(0, memory.first(100)), LogicError);
  EXPECT_THROW(file.read(0, memory.first(8192).subspan(8, 4096)), LogicError);
}

std::vector<Place> places() {
  std::vector<Place> all;
  for (const bool direct : {true, false}) {
    all.push_back({direct ? "Disk" : "DiskCached", fs::temp_directory_path(), direct});
    const fs::path memory = "/dev/shm";
    if (fs::is_directory(memory) && ::access(memory.c_str(), W_OK) == 0)
      all.push_back({direct ? "Memory" : "MemoryCached", memory, direct});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Places, DirectFileTest, testing::ValuesIn(places()),
                         [](const auto& tested) { return tested.param.name; });

TEST(DirectFile, GoesBesideTheCacheOnlyWhenAsked) {
  const TemporaryFolder folder;
  const fs::path path = put_file(folder / "file", "x");
  EXPECT_FALSE(DirectFile(path, DirectFile::Mode::read, false).direct());
  // Every file system that the tests are known to run on has it; overlays without are named here.
  if (!DirectFile(path, DirectFile::Mode::read).direct())
    GTEST_SKIP() << folder.path() << " is on a file system without direct I/O";
}

}  // namespace
}  // namespace megatrain::io
