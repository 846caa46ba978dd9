/// @file
/// Ranks that hold parts of a model save, load and export what one would.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <tuple>

#include "io/checkpoint/state_load.h"
#include "io/checkpoint/verify.h"
#include "tests/io/checkpoint_ranks.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;

constexpr Layout kLayouts[] = {{1, 1, 4}, {2, 1, 2}, {1, 3, 2}};

class PartsTest : public RanksTest {
 protected:
  PartsTest() { config_ = divisible_config("llama", false); }

  std::vector<std::exception_ptr> export_together(const Layout& layout, const Stores& stores,
                                                  const ExportOptions& options) {
    PeerHub hub(layout.ranks());
    return testing::on_threads(layout.ranks(), [&](int rank) {
      ExportOptions own = options;
      own.peers = &hub.of(rank);
      own.writes = rank < layout.writers();
      ThreadPool pool(2);
      export_model(*stores[static_cast<std::size_t>(rank)], preset_side_files(config_, true), own,
                   pool);
    });
  }
  /// A model whose matrices have several blocks: those cut by rows at whole pages, and in the
  /// middle of blocks; the down projection by columns.
  void use_large_matrices() {
    config_.hidden = 1024;
    config_.head_dim = 4;
    config_.intermediate = 4400;
    config_.layers = 1;
  }
};

TEST_F(PartsTest, SaveWhatOneSaves) {
  for (const auto& [type, tied, moments] :
       {std::tuple("qwen2", true, DType::f32), std::tuple("llama", false, DType::f32),
        std::tuple("qwen3", false, DType::f32), std::tuple("gpt2", true, DType::f32),
        std::tuple("gpt2", true, DType::bf16)}) {
    config_ = divisible_config(type, tied);
    rig_.moments = moments;
    const auto expected = files_of(saved_by_one("one"));
    EXPECT_GE(expected.size(), 8U);  // more than one shard
    for (const Layout& layout : kLayouts)
      for (const MasterFormat format : {MasterFormat::split, MasterFormat::fp32}) {
        if (layout.shards != 3 && format == MasterFormat::fp32) continue;
        SCOPED_TRACE(std::string(type) + " by " + layout.text());
        PeerHub hub(layout.ranks());
        expect_none_failed(
            save_together(hub, filled(layout, 1, format), layout.writers(), options("all")));
        EXPECT_TRUE(files_of(folder_ / "all") == expected);
        fs::remove_all(folder_ / "all");
      }
    fs::remove_all(folder_ / "one");
  }
}

TEST_F(PartsTest, SaveAndLoadLargeMatricesInBlocksOfManyWriters) {
  use_large_matrices();
  rig_.moments = DType::bf16;
  const auto expected = files_of(saved_by_one("one"));
  const Layout layout{1, 2, 2};
  PeerHub hub(layout.ranks());
  const Stores stores = filled(layout, 1);
  expect_none_failed(save_together(hub, stores, layout.writers(), options("all")));
  EXPECT_TRUE(files_of(folder_ / "all") == expected);
  const Checkpoint checkpoint(folder_ / "all");
  const Stores loaded = make_stores(layout);
  for (std::size_t rank = 0; rank < loaded.size(); ++rank) {
    load_state(checkpoint, *loaded[rank], LoadParts::all, rig_.pool);
    EXPECT_TRUE(slabs(*loaded[rank]) == slabs(*stores[rank])) << "rank " << rank;
  }
}

TEST_F(PartsTest, AnyDivisionLoadsWhatAnotherSaved) {
  for (const auto& [type, tied, moments] :
       {std::tuple("qwen2", true, DType::f32), std::tuple("gpt2", false, DType::bf16)}) {
    config_ = divisible_config(type, tied);
    rig_.moments = moments;
    const Layout saved{1, 2, 2};
    PeerHub hub(saved.ranks());
    expect_none_failed(save_together(hub, filled(saved, 2), saved.writers(), options("saved")));
    const Checkpoint checkpoint(folder_ / "saved");
    for (const Layout& layout : {Layout{1, 1, 1}, Layout{1, 3, 1}, Layout{1, 1, 2}, Layout{1, 1, 4},
                                 Layout{1, 2, 4}, Layout{1, 9, 2}})
      for (const MasterFormat format : {MasterFormat::split, MasterFormat::fp32}) {
        SCOPED_TRACE(layout.text());
        const Stores expected = filled(layout, 2, format);
        const Stores loaded = make_stores(layout, format);
        for (std::size_t rank = 0; rank < loaded.size(); ++rank) {
          load_state(checkpoint, *loaded[rank], LoadParts::all, rig_.pool);
          EXPECT_TRUE(slabs(*loaded[rank]) == slabs(*expected[rank])) << "rank " << rank;
        }
      }
    fs::remove_all(folder_ / "saved");
  }
}

TEST_F(PartsTest, ABitThatFlipsInTheRowsOfOnePartIsFound) {
  const Layout layout{1, 1, 2};
  PeerHub hub(layout.ranks());
  hub.arrives = [&](int rank, const std::string& name) {
    if (rank != 1 || !name.ends_with("written")) return;
    const fs::path shard = AtomicFolder::aside(folder_ / "c") / "shard_00001.h5";
    const Hdf5File file(shard);
    const Hdf5Dataset* found = file.find("/params/model.layers.0.mlp.down_proj.weight");
    ASSERT_NE(found, nullptr);
    const Hdf5Dataset& dataset = *found;
    std::fstream bytes(shard, std::ios::binary | std::ios::in | std::ios::out);
    bytes.seekg(dataset.offset + dataset.bytes - 1);
    const int last = bytes.peek();
    bytes.seekp(dataset.offset + dataset.bytes - 1);
    bytes.put(static_cast<char>(last ^ 4));
  };
  expect_all_failed(save_together(hub, filled(layout, 2), layout.writers(), options("c")),
                    {"rank 0", "shard_00001.h5", "/params/model.layers.0.mlp.down_proj.weight",
                     "bytes 80 to 3840", "part 1", "not what was written"});
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

/// Nothing is written that lacks a part, or has one twice.
TEST_F(PartsTest, EveryPartIsWrittenOnce) {
  for (const int writers : {0, 1, 3, 4}) {
    const Layout layout{2, 1, 2};
    PeerHub hub(layout.ranks());
    expect_all_failed(save_together(hub, filled(layout, 2), writers, options("c")),
                      {"rank 0", "written"});
    EXPECT_TRUE(fs::is_empty(folder_.path())) << writers;
  }
}

TEST_F(PartsTest, APartAloneIsNeitherSavedNorExported) {
  const auto store = rig_.make_store(config_, MasterFormat::split, {}, {2, 0});
  EXPECT_THROW(rig_.save(*store, options("c")), LogicError);
  EXPECT_THROW(
      export_model(*store, preset_side_files(config_, true), {.folder = folder_ / "m"}, rig_.pool),
      LogicError);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(PartsTest, ExportWhatOneExportsAndLoadIt) {
  for (const auto& [type, tied] :
       {std::pair("qwen3", true), std::pair("llama", false), std::pair("gpt2", true)})
    for (const DType dtype : {DType::bf16, DType::f32}) {
      config_ = divisible_config(type, tied);
      ExportOptions options{folder_ / "one", dtype, 30'000};
      const auto store = rig_.make_store(config_);
      initialize(*store, 5, rig_.pool);
      export_model(*store, preset_side_files(config_, true), options, rig_.pool);
      const auto expected = files_of(options.folder);
      options.folder = folder_ / "all";
      for (const Layout& layout : kLayouts) {
        SCOPED_TRACE(std::string(type) + " by " + layout.text());
        const Stores stores = make_stores(layout);
        for (const auto& part : stores) initialize(*part, 5, rig_.pool);
        expect_none_failed(export_together(layout, stores, options));
        EXPECT_TRUE(files_of(options.folder) == expected);
        fs::remove_all(options.folder);
        if (dtype != DType::f32) continue;
        for (const auto& part : stores) {
          const auto loaded = rig_.make_store(config_, MasterFormat::split, part->slicing(),
                                              part->model().partition());
          load_weights(folder_ / "one", *loaded, rig_.pool);
          EXPECT_TRUE(slabs(*loaded) == slabs(*part));
        }
      }
      fs::remove_all(folder_ / "one");
    }
}

TEST_F(PartsTest, LargeMatricesLoadFromAFolder) {
  use_large_matrices();
  const Layout layout{1, 2, 2};
  const Stores stores = make_stores(layout);
  for (const auto& part : stores) initialize(*part, 5, rig_.pool);
  expect_none_failed(export_together(layout, stores, {folder_ / "m", DType::f32}));
  for (const auto& part : stores) {
    const auto loaded =
        rig_.make_store(config_, MasterFormat::split, part->slicing(), part->model().partition());
    load_weights(folder_ / "m", *loaded, rig_.pool);
    EXPECT_TRUE(slabs(*loaded) == slabs(*part));
  }
}

}  // namespace
}  // namespace megatrain::io
