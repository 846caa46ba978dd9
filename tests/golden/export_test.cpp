/// Golden folders through a store and out again: what is exported is what was read.

#include <sys/wait.h>

#include <cstdlib>
#include <cstring>

#include "tests/golden/golden.h"
#include "tests/io/io_test_support.h"

namespace megatrain::golden {
namespace {

TEST(GoldenExport, Fp32RoundTripKeepsEveryBit) {
  const auto device = make_cpu_device({.threads = 1});
  ThreadPool pool(2);
  for (const auto& path : folders())
    for (const MasterFormat format : {MasterFormat::fp32, MasterFormat::split}) {
      SCOPED_TRACE(path.filename().string());
      const TemporaryFolder scratch;
      const Loaded first(path, format, 4, *device, pool);
      io::export_model(first.store, first.folder.side_files(),
                       {.folder = scratch / "model", .type = DType::f32}, pool);
      const Loaded second(scratch / "model", format, 4, *device, pool);
      EXPECT_EQ(second.model.config(), first.model.config());

      // The masters, and the files themselves.
      const Parameters before = masters(first.store);
      const Parameters after = masters(second.store);
      ASSERT_EQ(after.size(), before.size());
      for (const auto& [name, values] : before)
        EXPECT_EQ(std::memcmp(after.at(name).data(), values.data(), values.size() * 4), 0) << name;
      const io::SafetensorsFile source(path / "model.safetensors");
      const io::SafetensorsFile target(scratch / "model/model.safetensors");
      EXPECT_EQ(target.header().tensors.size(), source.header().tensors.size());
      for (const io::TensorInfo& tensor : source.header().tensors) {
        const io::TensorInfo* found = target.find(tensor.name);
        ASSERT_NE(found, nullptr) << tensor.name;
        EXPECT_EQ(found->type, tensor.type) << tensor.name;
        EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
        const auto bytes = [](const io::SafetensorsFile& file, const io::TensorInfo& info) {
          std::vector<std::byte> data(static_cast<std::size_t>(info.end - info.begin));
          file.read(info, 0, data);
          return data;
        };
        EXPECT_TRUE(bytes(target, *found) == bytes(source, tensor)) << tensor.name;
      }
    }
}

TEST(GoldenExport, TransformersGivesTheGoldenLogits) {
  const auto device = make_cpu_device({.threads = 1});
  ThreadPool pool(2);
  const TemporaryFolder scratch;
  std::string command = "python3 '" MEGATRAIN_GOLDEN_ORACLE "'";
  for (const auto& path : folders()) {
    const auto exported = scratch / path.filename().string();
    const Loaded loaded(path, MasterFormat::split, 2, *device, pool);
    io::export_model(loaded.store, loaded.folder.side_files(),
                     {.folder = exported, .type = DType::f32, .shard_bytes = 20'000}, pool);
    command += " '" + path.string() + "' '" + exported.string() + "'";
  }
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)
    GTEST_SKIP() << "Python's torch and transformers are not here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace megatrain::golden
