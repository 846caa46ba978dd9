// HDF5 files that others made, by mistake or on purpose: none may crash the reader, read outside
// the file, or lead it to another one.
#include <fcntl.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <random>

#include "io/hdf5/hdf5_file.h"
#include "io/hdf5/hdf5_writer.h"
#include "tests/io/io_test_support.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;

/// An identifier of the library that closes itself.
using Id = std::unique_ptr<const hid_t, void (*)(const hid_t*)>;

template <herr_t (*close)(hid_t)>
Id own(hid_t id) {
  if (id < 0) throw Error("the HDF5 library refuses what the test makes");
  return {new hid_t(id), [](const hid_t* owned) {
            close(*owned);
            delete owned;
          }};
}

Id space(std::vector<hsize_t> shape, std::vector<hsize_t> most = {}) {
  if (shape.empty()) return own<H5Sclose>(H5Screate(H5S_SCALAR));
  return own<H5Sclose>(H5Screate_simple(static_cast<int>(shape.size()), shape.data(),
                                        most.empty() ? nullptr : most.data()));
}

Id properties(hid_t kind) { return own<H5Pclose>(H5Pcreate(kind)); }

/// Makes a dataset of zeros.
void make_dataset(hid_t file, const char* name, hid_t type, const Id& shape, const Id& options) {
  const Id made =
      own<H5Dclose>(H5Dcreate2(file, name, type, *shape, H5P_DEFAULT, *options, H5P_DEFAULT));
}

class Hdf5Hostile : public testing::Test {
 protected:
  /// A file that `fill` fills; whatever the newest format or the oldest.
  fs::path make(const std::function<void(hid_t)>& fill, bool newest = false) {
    const fs::path path = folder_ / "hostile.h5";
    const Id access = properties(H5P_FILE_ACCESS);
    if (newest) H5Pset_libver_bounds(*access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    const Id file = own<H5Fclose>(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, *access));
    fill(*file);
    return path;
  }
  /// A file with one dataset "/d"; its refusal, which reading it must repeat.
  std::string refusal(hid_t type, const Id& shape, const Id& options) {
    const Hdf5File file(make([&](hid_t made) { make_dataset(made, "d", type, shape, options); }));
    const Hdf5Dataset* dataset = file.find("/d");
    if (dataset == nullptr) return "no dataset";
    if (dataset->refusal.empty()) return "";
    std::array<std::byte, 1> byte{};
    expect_user_error([&] { file.read(*dataset, 0, byte); },
                      {"hostile.h5", "'/d'", dataset->refusal});
    EXPECT_EQ(dataset->bytes, 0);
    return dataset->refusal;
  }
  std::string type_refusal(hid_t type) {
    const Id options = properties(H5P_DATASET_CREATE);
    H5Pset_alloc_time(*options, H5D_ALLOC_TIME_EARLY);
    return refusal(type, space({3}), options);
  }
  void expect_refused(const fs::path& path, std::initializer_list<std::string_view> parts) {
    expect_user_error([&] { Hdf5File{path}; }, parts);
  }

  TemporaryFolder folder_;
};

TEST_F(Hdf5Hostile, OtherLayoutsAreRefusedOneByOne) {
  const Id chunked = properties(H5P_DATASET_CREATE);
  const std::array<hsize_t, 1> two = {2};
  H5Pset_chunk(*chunked, 1, two.data());
  EXPECT_EQ(refusal(H5T_IEEE_F32LE, space({4}), chunked), "chunked layout");
  H5Pset_deflate(*chunked, 6);
  EXPECT_EQ(refusal(H5T_IEEE_F32LE, space({4}, {H5S_UNLIMITED}), chunked), "chunked layout");

  const Id plain = properties(H5P_DATASET_CREATE);
  EXPECT_EQ(refusal(H5T_IEEE_F32LE, space({4}), plain), "values that were never written");
  EXPECT_EQ(refusal(H5T_IEEE_F32LE, own<H5Sclose>(H5Screate(H5S_NULL)), plain), "no values at all");
  EXPECT_EQ(refusal(H5T_IEEE_F32LE, space(std::vector<hsize_t>(9, 1)), plain),
            "9 dimensions; at most 8 are read");

  const Id outside = properties(H5P_DATASET_CREATE);
  H5Pset_external(*outside, put_file(folder_ / "secret", "12345678").c_str(), 0, 8);
  EXPECT_EQ(refusal(H5T_IEEE_F32LE, space({2}), outside), "values in another file");
}

TEST_F(Hdf5Hostile, OtherTypesAreRefusedOneByOne) {
  EXPECT_EQ(type_refusal(H5T_IEEE_F32BE), "big-endian");
  EXPECT_EQ(type_refusal(H5T_STD_I64BE), "big-endian");
  EXPECT_EQ(type_refusal(H5T_STD_U8BE), "");  // one byte has no order
  EXPECT_EQ(type_refusal(H5T_C_S1), "string type");
  EXPECT_EQ(type_refusal(H5T_STD_B16LE), "bit field type");
  EXPECT_EQ(type_refusal(H5T_STD_REF_OBJ), "reference type");
  const auto own_type = [&](hid_t id, const std::function<void(hid_t)>& change) {
    const Id type = own<H5Tclose>(id);
    change(*type);
    return type_refusal(*type);
  };
  EXPECT_EQ(own_type(H5Tcreate(H5T_COMPOUND, 8),
                     [](hid_t type) {
                       H5Tinsert(type, "r", 0, H5T_IEEE_F32LE);
                       H5Tinsert(type, "i", 4, H5T_IEEE_F32LE);
                     }),
            "compound type");
  EXPECT_EQ(own_type(H5Tcreate(H5T_OPAQUE, 2), [](hid_t) {}), "opaque type");
  EXPECT_EQ(own_type(H5Tvlen_create(H5T_IEEE_F32LE), [](hid_t) {}), "variable-length type");
  const std::array<hsize_t, 1> two = {2};
  EXPECT_EQ(own_type(H5Tarray_create2(H5T_IEEE_F32LE, 1, two.data()), [](hid_t) {}), "array type");
  const auto integer = [&](const std::function<void(hid_t)>& change) {
    return own_type(H5Tcopy(H5T_STD_I32LE), change);
  };
  EXPECT_EQ(integer([](hid_t type) { H5Tset_precision(type, 31); }), "unusual 4-byte integer type");
  EXPECT_EQ(integer([](hid_t type) { H5Tset_size(type, 3); }), "unusual 3-byte integer type");
  EXPECT_EQ(integer([](hid_t type) { H5Tset_size(type, 16); }), "unusual 16-byte integer type");
  const auto floating = [&](const std::function<void(hid_t)>& change) {
    return own_type(H5Tcopy(H5T_IEEE_F32LE), change);
  };
  const char* unusual = "unusual 4-byte floating-point type";
  EXPECT_EQ(floating([](hid_t type) { H5Tset_ebias(type, 126); }), unusual);
  EXPECT_EQ(floating([](hid_t type) { H5Tset_norm(type, H5T_NORM_NONE); }), unusual);
  EXPECT_EQ(floating([](hid_t type) { H5Tset_fields(type, 31, 22, 9, 0, 22); }), unusual);
  EXPECT_EQ(floating([](hid_t) {}), "");
}

TEST_F(Hdf5Hostile, DtypeNamesOnlyBareIntegersOfItsWidth) {
  const auto type_of = [&](hid_t type, const char* dtype) {
    const Hdf5File file(make([&](hid_t made) {
      const Id options = properties(H5P_DATASET_CREATE);
      H5Pset_alloc_time(*options, H5D_ALLOC_TIME_EARLY);
      make_dataset(made, "d", type, space({3}), options);
      const Id dataset = own<H5Dclose>(H5Dopen2(made, "d", H5P_DEFAULT));
      const Id text = own<H5Tclose>(H5Tcopy(H5T_C_S1));
      H5Tset_size(*text, H5T_VARIABLE);
      const Id attribute =
          own<H5Aclose>(H5Acreate2(*dataset, "dtype", *text, *space({}), H5P_DEFAULT, H5P_DEFAULT));
      H5Awrite(*attribute, *text, static_cast<const void*>(&dtype));
    }));
    return file.find("/d")->type;
  };
  EXPECT_EQ(type_of(H5T_STD_U16LE, "BF16"), FileType::bf16);
  EXPECT_EQ(type_of(H5T_STD_U8LE, "F8_E4M3"), FileType::f8_e4m3);
  EXPECT_EQ(type_of(H5T_STD_U16LE, "F32"), FileType::u16);
  EXPECT_EQ(type_of(H5T_STD_U8LE, "F4"), FileType::u8);
  EXPECT_EQ(type_of(H5T_STD_U16LE, "whatever"), FileType::u16);
  EXPECT_EQ(type_of(H5T_STD_I16LE, "BF16"), FileType::i16);
  EXPECT_EQ(type_of(H5T_IEEE_F32LE, "I32"), FileType::f32);
}

TEST_F(Hdf5Hostile, CompactValuesAreRead) {
  const Hdf5File file(make([&](hid_t made) {
    const Id options = properties(H5P_DATASET_CREATE);
    H5Pset_layout(*options, H5D_COMPACT);
    make_dataset(made, "d", H5T_IEEE_F32LE, space({2}), options);
    const Id dataset = own<H5Dclose>(H5Dopen2(made, "d", H5P_DEFAULT));
    const std::array values = {1.5F, -2.0F};
    H5Dwrite(*dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  }));
  const Hdf5Dataset& dataset = *file.find("/d");
  EXPECT_EQ(dataset.refusal, "");
  EXPECT_EQ(dataset.bytes, 8);
  float second = 0;
  file.read(dataset, 4, std::as_writable_bytes(std::span(&second, 1)));
  EXPECT_EQ(second, -2.0F);
}

TEST_F(Hdf5Hostile, AVirtualDatasetOpensNoOtherFile) {
  // Whoever opens it to write succeeds only when someone has it open to read.
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const fs::path path = make(
      [&](hid_t made) {
        const Id options = properties(H5P_DATASET_CREATE);
        const Id source = space({10}, {H5S_UNLIMITED});
        const Id target = space({10}, {H5S_UNLIMITED});
        const std::array<hsize_t, 1> start = {0}, one = {1}, block = {H5S_UNLIMITED};
        for (const Id* all : {&source, &target})
          H5Sselect_hyperslab(**all, H5S_SELECT_SET, start.data(), nullptr, one.data(),
                              block.data());
        H5Pset_virtual(*options, *target, pipe.c_str(), "d", *source);
        make_dataset(made, "d", H5T_IEEE_F32LE, target, options);
      },
      true);
  // Were the pipe opened, the reader would wait for ever.
  EXPECT_EQ(Hdf5File(path).find("/d")->refusal, "virtual layout");
}

TEST_F(Hdf5Hostile, OnlyHardLinksAreFollowed) {
  expect_refused(
      make([](hid_t file) { H5Lcreate_soft("/x", file, "s", H5P_DEFAULT, H5P_DEFAULT); }),
      {"hostile.h5", "'/s'", "soft link"});
  expect_refused(make([](hid_t file) {
                   const Id group =
                       own<H5Gclose>(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
                   H5Lcreate_external("/etc/passwd", "/", *group, "e", H5P_DEFAULT, H5P_DEFAULT);
                 }),
                 {"hostile.h5", "'/g/e'", "another file"});
  expect_refused(make([](hid_t file) {
                   static const H5L_class_t kClass = {H5L_LINK_CLASS_T_VERS,
                                                      static_cast<H5L_type_t>(200),
                                                      "own",
                                                      nullptr,
                                                      nullptr,
                                                      nullptr,
                                                      [](const char*, hid_t, const void*, size_t,
                                                         hid_t, hid_t) -> hid_t { return -1; },
                                                      nullptr,
                                                      nullptr};
                   ASSERT_GE(H5Lregister(&kClass), 0);
                   H5Lcreate_ud(file, "u", kClass.id, "data", 4, H5P_DEFAULT, H5P_DEFAULT);
                   H5Lunregister(kClass.id);
                 }),
                 {"hostile.h5", "'/u'", "user-defined link"});
}

TEST_F(Hdf5Hostile, CyclesAndDepth) {
  expect_refused(make([](hid_t file) {
                   const Id group =
                       own<H5Gclose>(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
                   H5Lcreate_hard(file, "/", *group, "up", H5P_DEFAULT, H5P_DEFAULT);
                 }),
                 {"'/g/up'", "cycle"});
  expect_refused(make([](hid_t file) {
                   const Id group =
                       own<H5Gclose>(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
                   H5Lcreate_hard(file, "g", *group, "self", H5P_DEFAULT, H5P_DEFAULT);
                 }),
                 {"'/g/self'", "cycle"});
  const auto nested = [&](Index depth) {
    return make([&](hid_t file) {
      std::string path;
      for (Index i = 0; i < depth; ++i) {
        path += "/g";
        own<H5Gclose>(H5Gcreate2(file, path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
      }
      const Id options = properties(H5P_DATASET_CREATE);
      make_dataset(file, (path + "/d").c_str(), H5T_IEEE_F32LE, space({1}), options);
    });
  };
  EXPECT_EQ(Hdf5File(nested(kMaxHdf5Depth - 1)).datasets().size(), 1U);
  expect_refused(nested(kMaxHdf5Depth), {"/g'", "16 groups deep"});
}

TEST_F(Hdf5Hostile, OneDatasetMayHaveTwoNames) {
  const Hdf5File file(make([](hid_t made) {
    const Id options = properties(H5P_DATASET_CREATE);
    H5Pset_alloc_time(*options, H5D_ALLOC_TIME_EARLY);
    make_dataset(made, "a", H5T_IEEE_F32LE, space({2}), options);
    H5Lcreate_hard(made, "a", made, "b", H5P_DEFAULT, H5P_DEFAULT);
  }));
  ASSERT_EQ(file.datasets().size(), 2U);
  EXPECT_EQ(file.find("/a")->offset, file.find("/b")->offset);
}

TEST_F(Hdf5Hostile, WhatIsSharedOnDiskDoesNotFillTheMemory) {
  // 64 KB of values under ten thousand names.
  expect_refused(make([](hid_t made) {
                   const Id options = properties(H5P_DATASET_CREATE);
                   H5Pset_layout(*options, H5D_COMPACT);
                   make_dataset(made, "a", H5T_STD_U8LE, space({64'000}), options);
                   for (Index i = 0; i < 10'000; ++i)
                     H5Lcreate_hard(made, "a", made, std::to_string(i).c_str(), H5P_DEFAULT,
                                    H5P_DEFAULT);
                 }),
                 {"hostile.h5", "more than 256.00 MiB"});
}

TEST_F(Hdf5Hostile, AttributesOfOtherKindsAreLeftOut) {
  const Hdf5File file(make([](hid_t made) {
    const auto attribute = [&](const char* name, hid_t type, const Id& shape, const void* value) {
      const Id attribute_id =
          own<H5Aclose>(H5Acreate2(made, name, type, *shape, H5P_DEFAULT, H5P_DEFAULT));
      H5Awrite(*attribute_id, type, value);
    };
    const std::array<std::uint64_t, 2> numbers = {1, ~std::uint64_t{0}};
    attribute("list", H5T_NATIVE_UINT64, space({2}), numbers.data());
    attribute("huge", H5T_NATIVE_UINT64, space({}), &numbers[1]);
    attribute("u8", H5T_STD_U8LE, space({}), &numbers[1]);
    attribute("i8", H5T_STD_I8LE, space({}), &numbers[1]);
    attribute("u32", H5T_STD_U32LE, space({}), &numbers[1]);
    attribute("big", H5T_STD_I32BE, space({}), &numbers[0]);
    const float half = 0.5F;
    attribute("f32", H5T_NATIVE_FLOAT, space({}), &half);
    const Id text = own<H5Tclose>(H5Tcopy(H5T_C_S1));
    H5Tset_size(*text, 4);
    H5Tset_strpad(*text, H5T_STR_SPACEPAD);
    attribute("padded", *text, space({}), "a   ");
    H5Tset_size(*text, H5T_VARIABLE);
    const char* nothing = nullptr;
    attribute("nothing", *text, space({}), static_cast<const void*>(&nothing));
  }));
  EXPECT_EQ(file.attributes(),
            (std::vector<Hdf5Attribute>{{.name = "f32", .value = 0.5},
                                        {.name = "i8", .value = Index{-1}},
                                        {.name = "nothing", .value = ""},
                                        {.name = "padded", .value = "a"},
                                        {.name = "u32", .value = Index{4294967295}},
                                        {.name = "u8", .value = Index{255}}}));
}

TEST_F(Hdf5Hostile, ReadsWhatTheLibraryWritesInItsOldestAndNewestFormat) {
  // Few and many links and attributes lie in different structures, and those of many in several
  // levels.
  for (const bool newest : {false, true})
    for (const Index count : {Index{3}, Index{40}, Index{7000}}) {
      std::vector<haddr_t> offsets;
      const Hdf5File file(make(
          [&](hid_t made) {
            const Id options = properties(H5P_DATASET_CREATE);
            H5Pset_alloc_time(*options, H5D_ALLOC_TIME_EARLY);
            const Id group =
                own<H5Gclose>(H5Gcreate2(made, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
            for (Index i = 0; i < count; ++i) {
              const std::string name = fmt::format("a rather long name of a dataset {}", i);
              make_dataset(*group, name.c_str(), H5T_IEEE_F32LE,
                           space({static_cast<hsize_t>(i % 9) + 1}), options);
              const Id dataset = own<H5Dclose>(H5Dopen2(*group, name.c_str(), H5P_DEFAULT));
              offsets.push_back(H5Dget_offset(*dataset));
              // Of a group, so that they are many; the library is slow with them in old files.
              const bool own_attribute = i % 2 == 0 || (!newest && i > 100);
              const Id attribute = own<H5Aclose>(
                  H5Acreate2(own_attribute ? *dataset : *group, fmt::format("{}", i).c_str(),
                             H5T_STD_I64LE, *space({}), H5P_DEFAULT, H5P_DEFAULT));
              H5Awrite(*attribute, H5T_NATIVE_INT64, &i);
            }
          },
          newest));
      ASSERT_EQ(static_cast<Index>(file.datasets().size()), count);
      for (Index i = 0; i < count; ++i) {
        const Hdf5Dataset* dataset =
            file.find(fmt::format("/group/a rather long name of a dataset {}", i));
        ASSERT_NE(dataset, nullptr) << i;
        EXPECT_EQ(dataset->shape, std::vector<Index>{i % 9 + 1});
        EXPECT_EQ(static_cast<haddr_t>(dataset->offset), offsets[static_cast<std::size_t>(i)]);
        if (i % 2 != 0) continue;
        EXPECT_EQ(dataset->attributes,
                  (std::vector<Hdf5Attribute>{{.name = std::to_string(i), .value = i}}));
      }
    }
}

TEST_F(Hdf5Hostile, WhatIsNoHdf5IsSaidSo) {
  const std::string signature = "\x89HDF\r\n\x1a\n";
  const auto refused = [&](const std::string& content, std::string_view says) {
    expect_refused(put_file(folder_ / "hostile.h5", content), {"hostile.h5", says});
  };
  refused("", "not an HDF5 file");
  refused("PK\3\4 and so on", "not an HDF5 file");
  refused(std::string(512, '\0') + signature + std::string(512, '\0'), "first byte");
  refused(signature, "truncated: it has 8 bytes");
  refused(signature + std::string(100, '\7'), "superblock of version 7");
  refused(signature + std::string(100, '\0'), "64 bits");
  fs::create_directory(folder_ / "directory");
  expect_refused(folder_ / "directory", {"not a regular file"});
}

/// A file of ours: checksums over all metadata. Or one of h5py's kind: the oldest format, without.
std::string ours(const fs::path& folder) {
  std::vector<Hdf5DatasetSpec> specs = {
      {.path = "/params/a", .type = FileType::bf16, .shape = {4, 5}, .attributes = {}},
      {.path = "/params/b", .shape = {3000}, .attributes = {{.name = "layer", .value = "x"}}},
      {.path = "/scalar", .type = FileType::i64, .shape = {}, .attributes = {}}};
  for (Index i = 0; i < 12; ++i)
    specs.push_back({.path = fmt::format("/many/{}", i), .shape = {i}});
  create_hdf5(folder / "ours", specs,
              std::vector<Hdf5Attribute>{{.name = "step", .value = Index{3}}});
  return get_file(folder / "ours");
}

std::string oldest(const fs::path& path) {
  const Id file = own<H5Fclose>(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  const Id options = properties(H5P_DATASET_CREATE);
  H5Pset_alloc_time(*options, H5D_ALLOC_TIME_EARLY);
  own<H5Gclose>(H5Gcreate2(*file, "params", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  for (Index i = 0; i < 12; ++i)
    make_dataset(*file, fmt::format("params/{}", i).c_str(), H5T_IEEE_F32LE,
                 space({static_cast<hsize_t>(i) + 1, 2}), options);
  H5Pset_layout(*options, H5D_COMPACT);
  make_dataset(*file, "compact", H5T_STD_I16LE, space({5}), options);
  H5Fflush(*file, H5F_SCOPE_GLOBAL);
  return get_file(path);
}

/// Opens and reads all of it, or is refused; never anything else.
void expect_no_harm(const fs::path& path) {
  try {
    const Hdf5File file(path);
    for (const Hdf5Dataset& dataset : file.datasets()) {
      if (!dataset.refusal.empty()) continue;
      ASSERT_LE(dataset.bytes, file.bytes());
      Index elements = 1;
      for (const Index dimension : dataset.shape) elements = checked_mul(elements, dimension);
      ASSERT_EQ(elements * bits_of(dataset.type) / 8, dataset.bytes);
      std::vector<std::byte> values(static_cast<std::size_t>(dataset.bytes));
      file.read(dataset, 0, values);
    }
  } catch (const UserError&) {
  }
}

TEST_F(Hdf5Hostile, TruncatedAnywhere) {
  for (const std::string& content : {ours(folder_.path()), oldest(folder_ / "oldest")}) {
    const fs::path path = put_file(folder_ / "hostile.h5", content);
    EXPECT_FALSE(Hdf5File(path).datasets().empty());
    Index size = static_cast<Index>(content.size());
    while (size > 0) {
      size -= size > 200 ? 1 + size / 97 : 1;
      fs::resize_file(path, static_cast<std::uintmax_t>(size));
      expect_refused(path, {"hostile.h5"});
    }
  }
}

class Hdf5BitFlips : public Hdf5Hostile, public testing::WithParamInterface<bool> {};

TEST_P(Hdf5BitFlips, DoNoHarm) {
  const std::string content = GetParam() ? ours(folder_.path()) : oldest(folder_ / "oldest");
  const fs::path path = put_file(folder_ / "hostile.h5", content);
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const auto put = [&](std::size_t at, char value) {
    ASSERT_EQ(::pwrite(file.get(), &value, 1, static_cast<off_t>(at)), 1);
  };
  std::mt19937 random(7);
  for (std::size_t i = 0; i < content.size(); ++i) {
    // Metadata is what is not zero, and what is near.
    const bool inside =
        content.substr(i < 8 ? 0 : i - 8, 17).find_first_not_of('\0') != std::string::npos;
    if (!inside) continue;
    for (const char value : {static_cast<char>(content[i] ^ (1 << random() % 8)), '\xff',
                             static_cast<char>(random())}) {
      put(i, value);
      expect_no_harm(path);
      if (testing::Test::HasFatalFailure()) FAIL() << "byte " << i << " made " << int{value};
    }
    put(i, content[i]);
  }
  EXPECT_FALSE(Hdf5File(path).datasets().empty());
}

INSTANTIATE_TEST_SUITE_P(Formats, Hdf5BitFlips, testing::Bool(), [](const auto& tested) {
  return tested.param ? "Checksummed" : "Oldest";
});

TEST_F(Hdf5Hostile, DamageUnderAChecksumIsSaidSo) {
  std::string content = ours(folder_.path());
  const std::size_t at = content.find("layer");
  ASSERT_NE(at, std::string::npos);
  content[at] = 'p';
  expect_refused(put_file(folder_ / "hostile.h5", content),
                 {"hostile.h5", "'/params/b'", "checksum"});
}

TEST_F(Hdf5Hostile, ATreeThatIsItsOwnChild) {
  std::string content = get_file(make([](hid_t made) {
    for (Index i = 0; i < 600; ++i)
      H5Lcreate_hard(made, "/", made, std::to_string(i).c_str(), H5P_DEFAULT, H5P_DEFAULT);
  }));
  constexpr std::size_t kLevel = 5, kFirstChild = 32;
  std::size_t root = content.find("TREE");
  while (root != std::string::npos && content[root + kLevel] == 0)
    root = content.find("TREE", root + 1);
  ASSERT_NE(root, std::string::npos);
  content.replace(root + kFirstChild, 8, bytes_of_value(std::uint64_t{root}));
  expect_refused(put_file(folder_ / "hostile.h5", content), {"hostile.h5", "impossible depth"});
}

TEST_F(Hdf5Hostile, ShapesThatOthersClaim) {
  // The oldest format has no checksums: a dataset's extent is two numbers in the file.
  const std::string content = get_file(make([](hid_t made) {
    const Id options = properties(H5P_DATASET_CREATE);
    H5Pset_alloc_time(*options, H5D_ALLOC_TIME_EARLY);
    make_dataset(made, "d", H5T_IEEE_F32LE, space({0x12345}), options);
  }));
  const std::string claimed = bytes_of_value(std::uint64_t{0x12345});
  const std::string stored = bytes_of_value(std::uint64_t{0x12345 * 4});
  const auto with = [&](std::uint64_t shape, std::uint64_t bytes) {
    std::string changed = content;
    for (const auto& [from, to] :
         {std::pair(claimed, bytes_of_value(shape)), std::pair(stored, bytes_of_value(bytes))}) {
      const std::size_t at = changed.find(from);
      if (at == std::string::npos) throw Error("the format is another one");
      for (std::size_t next = at; next != std::string::npos; next = changed.find(from, next + 8))
        changed.replace(next, 8, to);
    }
    return put_file(folder_ / "hostile.h5", changed);
  };
  EXPECT_EQ(Hdf5File(with(0x12345, 0x12345 * 4)).find("/d")->shape[0], 0x12345);
  expect_refused(with(0x12346, 0x12345 * 4), {"hostile.h5"});
  expect_refused(with(std::uint64_t{1} << 40, std::uint64_t{4} << 40), {"hostile.h5"});
  expect_refused(with(std::uint64_t{1} << 62, 0x12345 * 4), {"hostile.h5"});
  expect_refused(with(std::uint64_t{1} << 63, 0x12345 * 4), {"hostile.h5"});
}

}  // namespace
}  // namespace megatrain::io
