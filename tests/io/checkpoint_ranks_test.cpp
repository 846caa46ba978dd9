/// @file
/// Several ranks save, load and export what one would.

#include <latch>
#include <tuple>

#include "io/checkpoint/state_load.h"
#include "io/checkpoint/verify.h"
#include "tests/io/checkpoint_ranks.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;
using testing::on_threads;

constexpr Layout kLayouts[] = {{1, 2}, {1, 3}, {1, 4}, {2, 2}, {3, 1}};

TEST_F(RanksTest, SaveWhatOneSaves) {
  for (const auto& [type, tied, moments] :
       {std::tuple("qwen2", true, DType::f32), std::tuple("llama", false, DType::f32),
        std::tuple("gpt2", true, DType::f32), std::tuple("qwen2", true, DType::bf16)}) {
    config_ = checkpoint_config(type, tied);
    rig_.moments = moments;
    const auto expected = files_of(saved_by_one("one"));
    EXPECT_GE(expected.size(), 8U);  // more than one shard
    for (const Layout& layout : kLayouts)
      // How a store keeps its masters does not show.
      for (const MasterFormat format : {MasterFormat::split, MasterFormat::fp32}) {
        if (layout.shards != 3 && format == MasterFormat::fp32) continue;
        SCOPED_TRACE(std::string(type) + " by " + std::to_string(layout.replicas) + "x" +
                     std::to_string(layout.shards));
        PeerHub hub(layout.ranks());
        SaveOptions together = options("all");
        std::atomic<int> published = 0;
        together.published = [&] { ++published; };
        expect_none_failed(save_together(hub, filled(layout, 1, format), layout.shards, together));
        EXPECT_EQ(published, 1);
        EXPECT_TRUE(files_of(folder_ / "all") == expected);
        fs::remove_all(folder_ / "all");
      }
    fs::remove_all(folder_ / "one");
  }
}

/// Blocks in the middle of large tensors, whole ones and ones that slices cut.
TEST_F(RanksTest, SaveLargeTensorsInBlocksOfManyWriters) {
  rig_.moments = DType::bf16;
  config_ = checkpoint_config("qwen2", true);
  config_.vocabulary = 400'003;  // 38 MB: three blocks, the last one odd
  const auto expected = files_of(saved_by_one("one"));
  const Layout layout{1, 3};
  PeerHub hub(layout.ranks());
  SaveOptions together = options("all");
  together.read_back = true;
  expect_none_failed(save_together(hub, filled(layout, 1), layout.shards, together));
  EXPECT_TRUE(files_of(folder_ / "all") == expected);
}

TEST_F(RanksTest, AnyNumberLoadsWhatFourSaved) {
  for (const bool tied : {true, false}) {
    config_ = checkpoint_config("qwen2", tied);
    const Layout four{1, 4};
    PeerHub hub(four.ranks());
    expect_none_failed(save_together(hub, filled(four, 2), four.shards, options("four")));
    const Checkpoint checkpoint(folder_ / "four");
    for (const int ranks : {1, 2, 3, 9})
      for (const MasterFormat format : {MasterFormat::split, MasterFormat::fp32}) {
        SCOPED_TRACE(ranks);
        const Stores expected = filled({1, ranks}, 2, format);
        const Stores loaded = make_stores({1, ranks}, format);
        for (int rank = 0; rank < ranks; ++rank) {
          HostStore& store = *loaded[static_cast<std::size_t>(rank)];
          load_state(checkpoint, store, LoadParts::all, rig_.pool);
          EXPECT_EQ(slabs(store), slabs(*expected[static_cast<std::size_t>(rank)]));
        }
      }
    fs::remove_all(folder_ / "four");
  }
}

/// Only what a rank holds is read: of large tensors a few blocks.
TEST_F(RanksTest, LoadReadsTheBlocksThatAreHeld) {
  config_ = checkpoint_config("qwen2", true);
  config_.vocabulary = 400'003;
  const Checkpoint checkpoint(saved_by_one("one"));
  const Stores expected = filled({1, 4}, 1);
  Index read = 0;
  for (const auto& store : expected) {
    const auto loaded = rig_.make_store(config_, MasterFormat::split, store->slicing());
    Index own = 0;
    load_state(checkpoint, *loaded, LoadParts::all, rig_.pool, [&](Index done, Index total) {
      own = done;
      EXPECT_LE(done, total);
    });
    EXPECT_TRUE(slabs(*loaded) == slabs(*store));
    read += own;
  }
  const Index whole = state_bytes(Model(config_), DType::f32);
  EXPECT_GE(read, whole);
  EXPECT_LT(read, 3 * whole);
}

TEST_F(RanksTest, DamageThatOneRankMeetsIsDamageForAll) {
  const Layout layout{1, 2};
  const fs::path folder = saved_by_one("one");
  const Checkpoint checkpoint(folder);
  // The largest tensor of the last unit: its end is the second rank's alone.
  const Checkpoint::Tensor& tensor = *checkpoint.find("/optim/exp_avg/lm_head.weight");
  std::string content = get_file(tensor.file->path());
  content[static_cast<std::size_t>(tensor.dataset->offset + tensor.dataset->bytes - 1)] ^= 1;
  put_file(tensor.file->path(), content);
  PeerHub hub(layout.ranks());
  const Stores stores = make_stores(layout);
  const auto failures = on_threads(layout.ranks(), [&](int rank) {
    ThreadPool pool(1);
    load_state(checkpoint, *stores[static_cast<std::size_t>(rank)], LoadParts::all, pool, {},
               hub.of(rank));
  });
  expect_all_failed(failures, {"lm_head.weight", "checksum"});
  for (const std::exception_ptr& failure : failures)
    EXPECT_THROW(std::rethrow_exception(failure), DamagedCheckpoint);
}

/// What the disk did to the bytes of one rank is found when the block is read back.
TEST_F(RanksTest, ABitThatFlipsBeforeTheReadBackIsFound) {
  const Layout layout{1, 2};
  const auto before = files_of(saved_by_one("c"));
  PeerHub hub(layout.ranks());
  hub.arrives = [&](int rank, const std::string& name) {
    if (rank != 1 || !name.ends_with("written")) return;
    const fs::path shard = AtomicFolder::aside(folder_ / "c") / "shard_00000.h5";
    const Hdf5File file(shard);
    const Hdf5Dataset& dataset = *file.find("/params/model.embed_tokens.weight");
    ASSERT_LT(dataset.bytes, kBlockBytes);
    std::fstream bytes(shard, std::ios::binary | std::ios::in | std::ios::out);
    bytes.seekg(dataset.offset + dataset.bytes - 1);
    const int last = bytes.peek();
    bytes.seekp(dataset.offset + dataset.bytes - 1);
    bytes.put(static_cast<char>(last ^ 4));
  };
  expect_all_failed(save_together(hub, filled(layout, 2), layout.shards, options("c")),
                    {"rank 0", "shard_00000.h5", "/params/model.embed_tokens.weight",
                     "bytes 16384 to 24864", "not what was written"});
  EXPECT_TRUE(nothing_aside());
  EXPECT_TRUE(files_of(folder_ / "c") == before);
}

TEST_F(RanksTest, ADiskThatIsFullForOneFailsOnAll) {
  const Layout layout{1, 3};
  const auto before = files_of(saved_by_one("c"));
  const Stores stores = filled(layout, 2);
  {
    PeerHub hub(layout.ranks());
    std::latch others(2);  // have written all
    hub.arrives = [&](int rank, const std::string& name) {
      if (rank != 1 && name.ends_with("written")) others.count_down();
    };
    std::optional<FileSizeLimit> limit;
    expect_all_failed(save_together(hub, stores, layout.shards, options("c"),
                                    [&](int rank, Index unit) {
                                      if (rank != 1 || unit != 0) return;
                                      others.wait();
                                      limit.emplace(8192);
                                    }),
                      {"rank 1", "size limit"});
  }
  EXPECT_TRUE(nothing_aside());
  EXPECT_TRUE(files_of(folder_ / "c") == before);
}

TEST_F(RanksTest, ADiskThatIsFullFromTheStartFailsOnAll) {
  const Layout layout{1, 2};
  const Stores stores = filled(layout, 2);
  PeerHub hub(layout.ranks());
  const FileSizeLimit limit(30'000);
  const auto failures = save_together(
      hub, stores, layout.shards, options("c"),
      [](int /*rank*/, Index /*unit*/) { ADD_FAILURE() << "the save should not have begun"; });
  expect_all_failed(failures, {"rank 0", "size limit"});
  for (const std::exception_ptr& failure : failures)
    EXPECT_THROW(std::rethrow_exception(failure), UserError);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(RanksTest, OneThatGivesUpOrNeverAnswersFailsOnAll) {
  const Layout layout{1, 3};
  const auto before = files_of(saved_by_one("c"));
  const Stores stores = filled(layout, 2);
  for (const bool silent : {false, true}) {
    PeerHub hub(layout.ranks());
    std::latch waiting(2);  // for rank 2, the others
    std::latch failed(2);
    hub.arrives = [&](int rank, const std::string& name) {
      if (rank != 2 && name.ends_with("written")) waiting.count_down();
    };
    const auto failures = on_threads(layout.ranks(), [&](int rank) {
      const HostStore& store = *stores[static_cast<std::size_t>(rank)];
      SaveOptions own = options("c");
      own.peers = &hub.of(rank);
      BlockPool blocks(2);
      BackgroundSave save(store, own, blocks, 1);
      const Index units = store.model().unit_count() - (rank == 2 ? 1 : 0);
      for (Index unit = 0; unit < units; ++unit) save.unit(unit);
      if (rank == 2) {
        waiting.wait();
        if (silent) {
          hub.lose(2);
          failed.wait();
        }
        throw Error("rank 2 has its own troubles");
      }
      try {
        save.wait();
      } catch (const Error&) {
        failed.count_down();
        throw;
      }
    });
    expect_all_failed(failures, {"rank 2"});
    expect_all_failed({failures[0], failures[1]}, {silent ? "is lost" : "given up"});
    EXPECT_TRUE(nothing_aside());
    EXPECT_TRUE(files_of(folder_ / "c") == before);
  }
}

TEST_F(RanksTest, AFolderThatIsNotSharedIsRefused) {
  const Layout layout{1, 2};
  const Stores stores = filled(layout, 2);
  const TemporaryFolder elsewhere;
  for (const bool leftover : {false, true}) {
    PeerHub hub(layout.ranks());
    const auto failures = on_threads(layout.ranks(), [&](int rank) {
      SaveOptions own = options("c");
      own.peers = &hub.of(rank);
      if (rank == 1) own.folder = elsewhere / "c";
      BlockPool blocks(2);
      BackgroundSave(*stores[static_cast<std::size_t>(rank)], own, blocks, 1);
    });
    expect_all_failed(failures, {"rank 1", "share", "c.megatrain.tmp"});
    EXPECT_TRUE(fs::is_empty(folder_.path()));
    // What an earlier save of one process may have left there, its own files among it.
    if (leftover) break;
    fs::copy(rig_.save(*rig_.make_store(config_), options("d")),
             AtomicFolder::aside(elsewhere / "c"));
    fs::remove_all(folder_ / "d");
  }
}

/// A byte that nobody or more than one writes is a mistake of the program, and not published.
TEST_F(RanksTest, EveryByteHasOneWriter) {
  const Layout layout{2, 2};
  const Stores stores = filled(layout, 2);
  for (const int writers : {0, 1, 3, 4}) {
    PeerHub hub(layout.ranks());
    expect_all_failed(save_together(hub, stores, writers, options("c")), {"rank 0", "written"});
    EXPECT_TRUE(fs::is_empty(folder_.path())) << writers;
  }
}

class ExportRanksTest : public RanksTest {
 protected:
  std::vector<std::exception_ptr> export_together(
      const Stores& stores, int writers, const ExportOptions& options,
      const std::function<void(int rank)>& writes = {}) {
    PeerHub hub(static_cast<int>(stores.size()));
    return on_threads(static_cast<int>(stores.size()), [&](int rank) {
      ExportOptions own = options;
      own.peers = &hub.of(rank);
      own.writes = rank < writers;
      ThreadPool pool(2);
      export_model(*stores[static_cast<std::size_t>(rank)], preset_side_files(config_, true), own,
                   pool, [&](Index /*done*/, Index /*all*/) {
                     if (writes) writes(rank);
                   });
    });
  }
};

TEST_F(ExportRanksTest, ExportWhatOneExports) {
  for (const bool tied : {true, false})
    for (const DType type : {DType::bf16, DType::f32})
      for (const Index shard_bytes : {Index{20'000}, Index{1} << 30}) {
        config_ = checkpoint_config("llama", tied);
        ExportOptions options{folder_ / "one", type, shard_bytes};
        const auto store = rig_.make_store(config_);
        initialize(*store, 5, rig_.pool);
        export_model(*store, preset_side_files(config_, true), options, rig_.pool);
        const auto expected = files_of(options.folder);
        fs::remove_all(options.folder);
        for (const Layout& layout : kLayouts) {
          const Stores stores = make_stores(layout);
          for (const auto& part : stores) initialize(*part, 5, rig_.pool);
          expect_none_failed(export_together(stores, layout.shards, options));
          EXPECT_TRUE(files_of(options.folder) == expected);
          fs::remove_all(options.folder);
        }
      }
}

TEST_F(ExportRanksTest, AnyNumberLoadsAnExport) {
  const Stores four = filled({1, 4}, 3);
  expect_none_failed(export_together(four, 4, {folder_ / "model", DType::f32, 30'000}));
  const auto whole = rig_.make_store(config_);
  load_weights(folder_ / "model", *whole, rig_.pool);
  for (const int ranks : {2, 3})
    for (const auto& part : make_stores({1, ranks})) {
      load_weights(folder_ / "model", *part, rig_.pool);
      for (Index unit = 0; unit < part->model().unit_count(); ++unit)
        for (const ParamDesc& param : part->model().unit(unit).params) {
          const ElementRange held = part->held(unit, param);
          std::vector<float> found(static_cast<std::size_t>(held.count())), expected(found);
          part->read_master(unit, param, held.first, found);
          whole->read_master(unit, param, held.first, expected);
          EXPECT_EQ(found, expected) << param.name;
        }
    }
}

TEST_F(ExportRanksTest, WhatFailsOnOneFailsOnAll) {
  const Layout layout{1, 3};
  const Stores stores = filled(layout, 3);
  EXPECT_FALSE(export_together(stores, 2, {folder_ / "model"})[0] == nullptr)
      << "a slice that nobody writes";
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  const auto failures = export_together(stores, 3, {folder_ / "model"}, [](int rank) {
    if (rank == 2) throw UserError("the disk is on fire");
  });
  expect_all_failed(failures, {"rank 2: the disk is on fire"});
  for (const std::exception_ptr& failure : failures)
    EXPECT_THROW(std::rethrow_exception(failure), UserError);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  put_file(folder_ / "model", "in the way");
  expect_all_failed(export_together(stores, 3, {folder_ / "model"}), {"rank 0", "exists"});
  EXPECT_EQ(get_file(folder_ / "model"), "in the way");
}

}  // namespace
}  // namespace megatrain::io
