#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>

#include "tests/io/io_test_support.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;

TEST(AtomicFile, AppearsWholeAtCommitOnly) {
  const TemporaryFolder folder;
  const fs::path path = put_file(folder / "f", "old");
  {
    AtomicFile file(path);
    file.append("new ");
    file.append("content");
    EXPECT_EQ(get_file(path), "old");
    file.commit();
  }
  EXPECT_EQ(get_file(path), "new content");
  EXPECT_FALSE(fs::exists(folder / "f.megatrain.tmp"));
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  const TemporaryFolder folder;
  const fs::path path = put_file(folder / "f", "old");
  put_file(folder / "f.megatrain.tmp", "left by a killed process, and longer than what comes");
  {
    AtomicFile file(path);
    file.append("new");
  }
  EXPECT_EQ(get_file(path), "old");
  EXPECT_FALSE(fs::exists(folder / "f.megatrain.tmp"));
  write_file(path, "x");
  EXPECT_EQ(get_file(path), "x");
}

TEST(AtomicFile, NamesWhatCannotBeCreated) {
  const TemporaryFolder folder;
  expect_user_error([&] { write_file(folder / "no/such/f", "x"); }, {"no/such", "No such file"});
  fs::create_directory(folder / "d");
  EXPECT_THROW(write_file(folder / "d", "x"), UserError);
  EXPECT_FALSE(fs::exists(folder / "d.megatrain.tmp"));
}

TEST(AtomicFile, AFullDiskIsAUserErrorAndLeavesTheOldFile) {
  const TemporaryFolder folder;
  const fs::path path = put_file(folder / "f", "old");
  {
    const FileSizeLimit limit(1000);
    expect_user_error([&] { write_file(path, std::string(5000, 'x')); }, {path.string()});
    // Space is claimed before the work.
    AtomicFile file(path);
    expect_user_error([&] { file.reserve(5000); }, {path.string()});
  }
  EXPECT_EQ(get_file(path), "old");
}

TEST(WriteFile, FollowsLinks) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "real");
  put_file(folder / "real/f", "old");
  fs::create_symlink("real/f", folder / "near");
  fs::create_symlink(fs::absolute(folder / "near"), folder / "far");
  fs::create_symlink("real/later", folder / "dangling");
  write_file(folder / "far", "new");
  write_file(folder / "dangling", "made");
  EXPECT_EQ(get_file(folder / "real/f"), "new");
  EXPECT_EQ(get_file(folder / "real/later"), "made");
  for (const char* link : {"near", "far", "dangling"})
    EXPECT_TRUE(fs::is_symlink(folder / link)) << link;
  fs::create_symlink("ring", folder / "ring");
  expect_user_error([&] { write_file(folder / "ring", "x"); }, {"ring", "symbolic links"});
}

TEST(WriteFile, WritesIntoPipesAndDevices) {
  const TemporaryFolder folder;
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  check_writable(pipe);
  // Both ends at once: a writer alone would wait.
  const FileDescriptor end(::open(pipe.c_str(), O_RDWR | O_NONBLOCK));
  ASSERT_TRUE(end);
  write_file(pipe, "content");
  std::array<char, 64> bytes{};
  EXPECT_EQ(::read(end.get(), bytes.data(), bytes.size()), 7);
  EXPECT_STREQ(bytes.data(), "content");
  EXPECT_TRUE(fs::is_fifo(pipe));

  // By a link, so that a failure of this test leaves the device.
  fs::create_symlink("/dev/full", folder / "full");
  expect_user_error([&] { write_file(folder / "full", "x"); }, {"full", "No space"});
  EXPECT_TRUE(fs::is_symlink(folder / "full"));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST(WriteFile, AnOpenFileGrowsUnderItsNumber) {
  const TemporaryFolder folder;
  const fs::path path = put_file(folder / "f", "before ");
  const FileDescriptor file(::open(path.c_str(), O_WRONLY));
  write_file("/proc/self/fd/" + std::to_string(file.get()), "and after");
  EXPECT_EQ(get_file(path), "before and after");
}

TEST(WriteFile, CanBeCheckedBefore) {
  const TemporaryFolder folder;
  const fs::path path = put_file(folder / "f", "old");
  check_writable(path);
  check_writable(folder / "none");
  EXPECT_EQ(get_file(path), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "."), fs::directory_iterator()), 1);
  EXPECT_THROW(check_writable("/proc/none"), UserError);
  if (::geteuid() == 0) return;  // may write anywhere
  fs::permissions(path, fs::perms::owner_read);
  EXPECT_THROW(check_writable(path), UserError);
  fs::permissions(folder / ".", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THROW(check_writable(folder / "none"), UserError);
  fs::permissions(folder / ".", fs::perms::owner_all);
}

TEST(AtomicFolder, ReplacesOnlyWhenTold) {
  const TemporaryFolder folder;
  const fs::path target = folder / "run/model";
  {
    AtomicFolder first(target, false);
    put_file(first.path() / "a", "1");
    EXPECT_FALSE(fs::exists(target));
    first.commit();
  }
  EXPECT_EQ(get_file(target / "a"), "1");
  expect_user_error([&] { AtomicFolder again(target, false); }, {"run/model", "exists"});
  {
    AtomicFolder dropped(target, true);
    put_file(dropped.path() / "a", "2");
  }
  EXPECT_EQ(get_file(target / "a"), "1");
  fs::create_directory(folder / "run/model.megatrain.tmp");
  put_file(folder / "run/model.megatrain.tmp/stale", "");
  {
    AtomicFolder second(fs::path(target.string() + "/"), true);
    put_file(second.path() / "b", "2");
    second.commit();
  }
  EXPECT_FALSE(fs::exists(target / "a"));
  EXPECT_FALSE(fs::exists(target / "stale"));
  EXPECT_EQ(get_file(target / "b"), "2");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "run"), fs::directory_iterator()), 1);
  put_file(folder / "file", "");
  expect_user_error([&] { AtomicFolder onto(folder / "file", true); }, {"in the way"});
}

}  // namespace
}  // namespace megatrain::io
