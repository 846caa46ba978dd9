#include "io/atomic_file.h"

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
