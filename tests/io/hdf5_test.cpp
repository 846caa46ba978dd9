#include "io/hdf5/hdf5_file.h"

#include <fmt/format.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>

#include "core/base/bfloat16.h"
#include "io/direct_file.h"
#include "io/hdf5/hdf5_writer.h"
#include "tests/io/io_test_support.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;

constexpr std::array kStorable = {FileType::boolean,     FileType::u8,          FileType::i8,
                                  FileType::f8_e5m2,     FileType::f8_e4m3,     FileType::f8_e8m0,
                                  FileType::f8_e4m3fnuz, FileType::f8_e5m2fnuz, FileType::i16,
                                  FileType::u16,         FileType::f16,         FileType::bf16,
                                  FileType::i32,         FileType::u32,         FileType::f32,
                                  FileType::f64,         FileType::i64,         FileType::u64};

Index bytes_of(const Hdf5DatasetSpec& spec) {
  Index bytes = bits_of(spec.type) / 8;
  for (const Index dimension : spec.shape) bytes *= dimension;
  return bytes;
}

/// Different for each dataset and byte.
std::string pattern(Index bytes, std::size_t seed) {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>((i * 7 + i / 256 + seed * 31) & 0xff);
  return text;
}

/// Writes as the checkpoint's writer does: whole pages, from aligned memory.
void fill(const fs::path& path, Index offset, std::string_view values) {
  if (values.empty()) return;
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(
          kDirectAlignment,
          static_cast<std::size_t>(round_up(static_cast<Index>(values.size()), kDirectAlignment))),
      &std::free);
  std::memcpy(memory.get(), values.data(), values.size());
  DirectFile file(path, DirectFile::Mode::write);
  file.write(offset, std::span(static_cast<const std::byte*>(memory.get()), values.size()));
}

std::string read_all(const Hdf5File& file, const Hdf5Dataset& dataset) {
  std::string text(static_cast<std::size_t>(dataset.bytes), '\0');
  // In two pieces that meet at an odd byte.
  const std::size_t half = text.size() / 3;
  const auto out = std::as_writable_bytes(std::span(text));
  file.read(dataset, static_cast<Index>(half), out.subspan(half));
  file.read(dataset, 0, out.first(half));
  return text;
}

template <typename T>
std::string bytes_of_values(std::initializer_list<T> values) {
  std::string bytes;
  for (const T& value : values) bytes += bytes_of_value(value);
  return bytes;
}

/// Runs a command; its output. nullopt when the program is not there or says that it cannot work
/// here.
std::optional<std::string> output_of(const std::string& command, const fs::path& log) {
  const int status = std::system((command + " > '" + log.string() + "' 2>&1").c_str());
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127))
    return std::nullopt;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command << "\n" << get_file(log);
  return get_file(log);
}

class Hdf5 : public testing::Test {
 protected:
  TemporaryFolder folder_;
  fs::path path_ = folder_ / "f.h5";
};

TEST_F(Hdf5, EveryTypeAndShapeRoundTrips) {
  const std::vector<std::vector<Index>> shapes = {
      {}, {1}, {3, 5}, {0, 4}, {4096}, {33, 129}, {2, 1, 3, 1, 2, 1, 1, 2}};
  std::vector<Hdf5DatasetSpec> specs;
  for (const FileType type : kStorable)
    for (std::size_t i = 0; i < shapes.size(); ++i)
      specs.push_back({.path = fmt::format("/group/{}/model.{}.weight", name(type), i),
                       .type = type,
                       .shape = shapes[i]});
  for (const Hdf5Bf16 bf16 : {Hdf5Bf16::floating, Hdf5Bf16::uint16}) {
    const Hdf5Layout layout = create_hdf5(path_, specs, {}, bf16);
    EXPECT_EQ(layout.bytes, static_cast<Index>(fs::file_size(path_)));
    ASSERT_EQ(layout.offsets.size(), specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i)
      fill(path_, layout.offsets[i], pattern(bytes_of(specs[i]), i));
    // The values lie where the metadata is not, and beside each other.
    const Hdf5File file(path_);
    EXPECT_EQ(file.bytes(), layout.bytes);
    EXPECT_EQ(file.datasets().size(), specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const Hdf5Dataset* found = file.find(specs[i].path);
      ASSERT_NE(found, nullptr) << specs[i].path;
      EXPECT_EQ(found->refusal, "");
      EXPECT_EQ(found->type, specs[i].type) << specs[i].path;
      EXPECT_EQ(found->shape, specs[i].shape) << specs[i].path;
      EXPECT_EQ(found->bytes, bytes_of(specs[i]));
      EXPECT_EQ(found->offset, layout.offsets[i]);
      EXPECT_EQ(found->offset % kDirectAlignment, 0);
      EXPECT_TRUE(read_all(file, *found) == pattern(found->bytes, i)) << specs[i].path;
    }
  }
}

TEST_F(Hdf5, AttributesRoundTripSortedByName) {
  const std::vector<Hdf5Attribute> of_file = {{.name = "format", .value = "megatrain"},
                                              {.name = "empty", .value = ""},
                                              {.name = "step", .value = Index{-5}},
                                              {.name = "loss", .value = 0.1},
                                              {.name = "long", .value = std::string(200'000, 'x')},
                                              {.name = "näme", .value = "wörds \n"}};
  std::vector<Hdf5Attribute> many;
  for (Index i = 10; i < 50; ++i) many.push_back({.name = fmt::format("a{}", i), .value = i});
  create_hdf5(path_, std::vector<Hdf5DatasetSpec>{{.path = "/d", .shape = {2}, .attributes = many}},
              of_file);
  const Hdf5File file(path_);
  std::vector<Hdf5Attribute> sorted = of_file;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  EXPECT_EQ(file.attributes(), sorted);
  many.push_back({.name = "dtype", .value = "F32"});
  EXPECT_EQ(file.find("/d")->attributes, many);
  EXPECT_EQ(file.find("/e"), nullptr);
  EXPECT_EQ(file.find("/"), nullptr);
}

TEST_F(Hdf5, BytesDependOnTheArgumentsAlone) {
  const std::vector<Hdf5DatasetSpec> specs = {
      {.path = "/params/w", .type = FileType::bf16, .shape = {300}, .attributes = {}},
      {.path = "/optim/exp_avg/w", .shape = {300}, .attributes = {{.name = "a", .value = 0.5}}}};
  const std::vector<Hdf5Attribute> attributes = {{.name = "step", .value = Index{7}}};
  create_hdf5(path_, specs, attributes);
  create_hdf5_view(folder_ / "view", std::vector<Hdf5Link>{{.path = "/params/w", .file = "f.h5"}},
                   attributes);
  // Times count seconds. What was there before, and what the process did before, is of no account.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const fs::path again = put_file(folder_ / "g.h5", std::string(3'000'000, 'x'));
  create_hdf5(again, specs, attributes);
  create_hdf5_view(folder_ / "again", std::vector<Hdf5Link>{{.path = "/params/w", .file = "f.h5"}},
                   attributes);
  EXPECT_TRUE(get_file(path_) == get_file(again));
  EXPECT_TRUE(get_file(folder_ / "view") == get_file(folder_ / "again"));
  create_hdf5(again, specs, std::vector<Hdf5Attribute>{{.name = "step", .value = Index{8}}});
  EXPECT_FALSE(get_file(path_) == get_file(again));
}

TEST_F(Hdf5, ManyDatasetsAndGroups) {
  constexpr Index kCount = 10'000;
  std::vector<Hdf5DatasetSpec> specs;
  for (Index i = 0; i < kCount; ++i)
    specs.push_back({.path = fmt::format("/params/{}layers.{}.weight",
                                         i < 500 ? fmt::format("g{}/", i) : "", i),
                     .shape = {1 + i % 7, 1024}});
  const Hdf5Layout layout = create_hdf5(path_, specs, {});
  std::vector<std::pair<Index, Index>> ranges;
  for (std::size_t i = 0; i < specs.size(); ++i)
    ranges.emplace_back(layout.offsets[i], layout.offsets[i] + bytes_of(specs[i]));
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) ASSERT_LE(ranges[i - 1].second, ranges[i].first);
  const Hdf5File file(path_);
  ASSERT_EQ(static_cast<Index>(file.datasets().size()), kCount);
  EXPECT_EQ(file.find(specs[1234].path)->offset, layout.offsets[1234]);
}

TEST_F(Hdf5, SizesAndOffsetsBeyond32Bits) {
  const std::vector<Hdf5DatasetSpec> specs = {
      {.path = "/a", .type = FileType::u8, .shape = {5, Index{1} << 30}, .attributes = {}},
      {.path = "/b", .type = FileType::u8, .shape = {5}, .attributes = {}}};
  const Hdf5Layout layout = create_hdf5(path_, specs, {});
  EXPECT_GT(layout.bytes, Index{5} << 30);
  EXPECT_GT(std::max(layout.offsets[0], layout.offsets[1]), Index{1} << 20);
  const Index last = (Index{5} << 30) - kDirectAlignment;
  fill(path_, layout.offsets[0] + last, pattern(kDirectAlignment, 1));
  fill(path_, layout.offsets[1], "12345");
  const Hdf5File file(path_);
  std::string tail(kDirectAlignment, '\0');
  file.read(*file.find("/a"), last, std::as_writable_bytes(std::span(tail)));
  EXPECT_TRUE(tail == pattern(kDirectAlignment, 1));
  EXPECT_EQ(read_all(file, *file.find("/b")), "12345");
}

TEST_F(Hdf5, ReadsStayInsideTheDataset) {
  create_hdf5(path_, std::vector<Hdf5DatasetSpec>{{.path = "/d", .shape = {2}}}, {});
  const Hdf5File file(path_);
  const Hdf5Dataset& dataset = *file.find("/d");
  std::array<std::byte, 9> out{};
  EXPECT_THROW(file.read(dataset, 0, out), LogicError);
  EXPECT_THROW(file.read(dataset, 8, std::span(out).first(1)), LogicError);
  EXPECT_THROW(file.read(dataset, -1, std::span(out).first(1)), LogicError);
  EXPECT_THROW(file.read(dataset, std::numeric_limits<Index>::max(), std::span(out).first(1)),
               LogicError);
  file.read(dataset, 8, {});
}

TEST_F(Hdf5, MistakesOfTheCaller) {
  const auto create = [&](std::vector<Hdf5DatasetSpec> specs) { create_hdf5(path_, specs, {}); };
  EXPECT_THROW(create({{.path = "/a", .shape = {1}}, {.path = "/a", .shape = {2}}}), LogicError);
  EXPECT_THROW(create({{.path = "a", .shape = {}}}), LogicError);
  EXPECT_THROW(create({{.path = "/", .shape = {}}}), LogicError);
  EXPECT_THROW(create({{.path = "/a/./b", .shape = {}}}), LogicError);
  EXPECT_THROW(create({{.path = "/a//b", .shape = {}}}), LogicError);
  EXPECT_THROW(create({{.path = "/types/bfloat16", .shape = {}}}), LogicError);
  for (const FileType type : {FileType::f4, FileType::f6_e2m3, FileType::f6_e3m2, FileType::c64})
    EXPECT_THROW(create({{.path = "/a", .type = type, .shape = {8}}}), LogicError) << name(type);
  const auto attribute = [&](std::vector<Hdf5Attribute> attributes) {
    create({{.path = "/a", .shape = {}, .attributes = std::move(attributes)}});
  };
  EXPECT_THROW(attribute({{.name = "dtype", .value = "BF16"}}), LogicError);
  EXPECT_THROW(attribute({{.name = "x", .value = "1"}, {.name = "x", .value = "2"}}), LogicError);
  EXPECT_THROW(attribute({{.name = "x", .value = std::string("a\0b", 3)}}), LogicError);
  EXPECT_THROW(create_hdf5_view(path_, std::vector<Hdf5Link>{{.path = "/a", .file = "../x"}}, {}),
               LogicError);
  EXPECT_THROW(create({{.path = "/a", .shape = {Index{1} << 62, 4}}}), UserError);
}

TEST_F(Hdf5, WhatCannotBeWrittenIsNamed) {
  const std::vector<Hdf5DatasetSpec> specs = {{.path = "/a", .shape = {1}}};
  expect_user_error([&] { create_hdf5(folder_ / "no/f.h5", specs, {}); },
                    {"no/f.h5", "No such file"});
  fs::create_directory(folder_ / "d");
  expect_user_error([&] { create_hdf5(folder_ / "d", specs, {}); }, {"/d'"});
  expect_user_error([&] { Hdf5File(folder_ / "missing.h5"); }, {"missing.h5", "No such file"});

  // A full disk, as a limit on the size of files: said once, and the process ends in peace.
  const pid_t child = ::fork();
  if (child == 0) {
    const FileSizeLimit limit(10'000);
    int result = 1;
    try {
      create_hdf5(path_, specs, {});
    } catch (const UserError& error) {
      const std::string_view text = error.what();
      result = text.find("f.h5") != text.npos && text.find("size limit") != text.npos ? 0 : 2;
    } catch (...) {
      result = 3;
    }
    std::exit(result);  // the library cleans up
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Hdf5, ThreadsTakeTurns) {
  std::vector<std::thread> threads;
  for (Index t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const fs::path path = folder_ / fmt::format("{}.h5", t);
      for (Index i = 0; i < 5; ++i) {
        const std::string name = fmt::format("/params/{}.{}", t, i);
        create_hdf5(path, std::vector<Hdf5DatasetSpec>{{.path = name, .shape = {t + 1}}}, {});
        EXPECT_EQ(Hdf5File(path).find(name)->shape, std::vector<Index>{t + 1});
        expect_user_error([&] { Hdf5File(folder_ / "none"); }, {"none"});
      }
    });
  for (std::thread& thread : threads) thread.join();
}

/// Four datasets with values, and a view.
class Hdf5Interop : public Hdf5 {
 protected:
  void SetUp() override {
    const std::vector<Hdf5DatasetSpec> specs = {
        {.path = "/params/model.norm.weight",
         .type = FileType::f32,
         .shape = {3},
         .attributes = {{.name = "layer", .value = Index{4}}, {.name = "note", .value = "häß"}}},
        {.path = "/params/b", .type = FileType::bf16, .shape = {2, 2}, .attributes = {}},
        {.path = "/optim/exp_avg/b", .type = FileType::i64, .shape = {}, .attributes = {}},
        {.path = "/none", .type = FileType::f16, .shape = {0, 7}, .attributes = {}}};
    for (const auto& [name, bf16] :
         {std::pair{"f.h5", Hdf5Bf16::floating}, std::pair{"u.h5", Hdf5Bf16::uint16}}) {
      const Hdf5Layout layout =
          create_hdf5(folder_ / name, specs,
                      std::vector<Hdf5Attribute>{{.name = "step", .value = Index{12}}}, bf16);
      fill(folder_ / name, layout.offsets[0], bytes_of_values({1.5F, -0.0F, 0x1p127F}));
      fill(folder_ / name, layout.offsets[1],
           bytes_of_values({to_bfloat16(1.0F), to_bfloat16(-2.5F), to_bfloat16(1e30F),
                            to_bfloat16(0x1p-133F)}));
      fill(folder_ / name, layout.offsets[2], bytes_of_value(Index{-123456789012}));
    }
    create_hdf5_view(folder_ / "view.h5",
                     std::vector<Hdf5Link>{{.path = "/params/model.norm.weight", .file = "f.h5"},
                                           {.path = "/optim/exp_avg/b", .file = "u.h5"}},
                     std::vector<Hdf5Attribute>{{.name = "step", .value = Index{12}}});
  }
};

TEST_F(Hdf5Interop, TheLibraryReadsTheSameThroughTheView) {
  const hid_t file = H5Fopen((folder_ / "view.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const hid_t floats = H5Dopen2(file, "/params/model.norm.weight", H5P_DEFAULT);
  ASSERT_GE(floats, 0);
  std::array<float, 3> values{};
  EXPECT_GE(H5Dread(floats, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  EXPECT_EQ(values, (std::array{1.5F, -0.0F, 0x1p127F}));
  const hid_t scalar = H5Dopen2(file, "/optim/exp_avg/b", H5P_DEFAULT);
  ASSERT_GE(scalar, 0);
  Index value = 0;
  EXPECT_GE(H5Dread(scalar, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value), 0);
  EXPECT_EQ(value, -123456789012);
  H5Dclose(scalar);
  H5Dclose(floats);
  EXPECT_GE(H5Fclose(file), 0);
  expect_user_error([&] { Hdf5File(folder_ / "view.h5"); },
                    {"view.h5", "model.norm.weight", "another file"});
}

TEST_F(Hdf5Interop, BFloat16IsACommittedFloatType) {
  const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const hid_t committed = H5Topen2(file, "/types/bfloat16", H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, "/params/b", H5P_DEFAULT);
  const hid_t type = H5Dget_type(dataset);
  EXPECT_GT(H5Tequal(committed, type), 0);
  EXPECT_GT(H5Tcommitted(type), 0);
#ifdef H5T_FLOAT_BFLOAT16LE
  EXPECT_GT(H5Tequal(committed, H5T_FLOAT_BFLOAT16LE), 0);
#endif
  std::array<float, 4> values{};
  EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  EXPECT_EQ(values, (std::array{1.0F, -2.5F, to_float(to_bfloat16(1e30F)), 0x1p-133F}));
  H5Tclose(type);
  H5Dclose(dataset);
  H5Tclose(committed);
  EXPECT_GE(H5Fclose(file), 0);
  for (const char* name : {"f.h5", "u.h5"})
    EXPECT_EQ(Hdf5File(folder_ / name).find("/params/b")->type, FileType::bf16);
}

TEST_F(Hdf5Interop, ToolsReadTheSame) {
  const fs::path log = folder_ / "log";
  const std::string quoted = " '" + path_.string() + "'";
  const auto listing = output_of("h5ls -r" + quoted, log);
  if (!listing) GTEST_SKIP() << "no h5ls here (hdf5-tools)";
  for (const char* line :
       {"/params/model.norm.weight Dataset {3}", "/params/b                Dataset {2, 2}",
        "/optim/exp_avg/b         Dataset {SCALAR}", "/types/bfloat16          Type"})
    EXPECT_NE(listing->find(line), std::string::npos) << line << "\n" << *listing;
  const auto dump = output_of("h5dump -m '%.9g'" + quoted, log);
  ASSERT_TRUE(dump);
  for (const char* part : {"(0): 1.5,", "(2): 1.70141183e+38", "(1,0): 1.00025555e+30",
                           "(0): -123456789012", "16-bit little-endian floating-point"})
    EXPECT_NE(dump->find(part), std::string::npos) << part << "\n" << *dump;
  EXPECT_TRUE(output_of("h5diff" + quoted + quoted, log));
}

TEST_F(Hdf5Interop, H5pyReadsTheSame) {
  const auto output = output_of(
      "python3 '" MEGATRAIN_HDF5_ORACLE "' '" + folder_.path().string() + "'", folder_ / "log");
  if (!output) GTEST_SKIP() << "python3 with h5py is not there";
  // What h5py wrote, on its side of the exchange.
  const Hdf5File file(folder_ / "h5py.h5");
  const Hdf5Dataset* halves = file.find("/params/half");
  ASSERT_NE(halves, nullptr);
  EXPECT_EQ(halves->type, FileType::f16);
  EXPECT_EQ(read_all(file, *halves), bytes_of_values<std::uint16_t>({0x3c00, 0xc000, 0x7c00}));
  EXPECT_EQ(halves->attributes, (std::vector<Hdf5Attribute>{{.name = "count", .value = Index{3}},
                                                            {.name = "name", .value = "hälf"},
                                                            {.name = "scale", .value = 0.25}}));
  EXPECT_EQ(file.find("/chunked")->refusal, "chunked layout");
  EXPECT_EQ(file.find("/boolean")->refusal, "enumeration type");
  EXPECT_EQ(file.find("/text")->refusal, "string type");
  // An edit in place of a file of ours.
  const Hdf5File edited(folder_ / "edited.h5");
  EXPECT_EQ(read_all(edited, *edited.find("/params/model.norm.weight")),
            bytes_of_values({1.5F, 42.0F, 0x1p127F}));
}

}  // namespace
}  // namespace megatrain::io
