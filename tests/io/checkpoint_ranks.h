#pragma once
/// @file
/// Ranks, as threads, whose stores hold slices and parts of one model, and which save it together.

#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/io/checkpoint_rig.h"
#include "tests/io/io_test_support.h"
#include "tests/io/thread_peers.h"
#include "tests/rank_threads.h"

namespace megatrain::io {

using Stores = std::vector<std::unique_ptr<HostStore>>;

/// Shard groups of `shards` ranks, of which the first writes; each of them is a rank for each of
/// `parts` parts of the model, neighbours.
struct Layout {
  int replicas = 1;
  int shards = 1;
  int parts = 1;
  [[nodiscard]] int ranks() const { return replicas * shards * parts; }
  [[nodiscard]] int writers() const { return shards * parts; }
  [[nodiscard]] std::string text() const {
    return std::to_string(replicas) + "x" + std::to_string(shards) + "x" + std::to_string(parts);
  }
};

inline std::string message_of(const std::exception_ptr& failure) {
  if (!failure) return "nothing";
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Expects that every rank failed, for a reason that holds all `parts`.
inline void expect_all_failed(const std::vector<std::exception_ptr>& failures,
                              std::initializer_list<std::string_view> parts) {
  for (std::size_t rank = 0; rank < failures.size(); ++rank)
    for (const std::string_view part : parts)
      EXPECT_NE(message_of(failures[rank]).find(part), std::string::npos)
          << "rank " << rank << " says '" << message_of(failures[rank]) << "'";
}

inline void expect_none_failed(const std::vector<std::exception_ptr>& failures) {
  for (const std::exception_ptr& failure : failures) EXPECT_EQ(message_of(failure), "nothing");
}

class RanksTest : public ::testing::Test {
 protected:
  SaveOptions options(std::string_view name) {
    return training_checkpoint(config_, folder_ / name, 7);
  }

  Stores make_stores(const Layout& layout, MasterFormat format = MasterFormat::split) {
    Stores stores;
    for (int rank = 0; rank < layout.ranks(); ++rank)
      stores.push_back(rig_.make_store(config_, format,
                                       {layout.shards, rank / layout.parts % layout.shards},
                                       {layout.parts, rank % layout.parts}));
    return stores;
  }
  Stores filled(const Layout& layout, std::uint32_t seed,
                MasterFormat format = MasterFormat::split) {
    Stores stores = make_stores(layout, format);
    for (const auto& store : stores) rig_.fill(*store, seed);
    return stores;
  }
  std::filesystem::path saved_by_one(std::string_view name, std::uint32_t seed = 1) {
    const auto store = rig_.make_store(config_);
    rig_.fill(*store, seed);
    return rig_.save(*store, options(name));
  }

  /// What save_together lets a rank do between two units.
  using Between = std::function<void(int rank, Index unit)>;

  std::vector<std::exception_ptr> save_together(PeerHub& hub, const Stores& stores, int writers,
                                                const SaveOptions& options,
                                                const Between& between = {}) {
    return testing::on_threads(static_cast<int>(stores.size()), [&](int rank) {
      const HostStore& store = *stores[static_cast<std::size_t>(rank)];
      SaveOptions own = options;
      own.peers = &hub.of(rank);
      own.writes = rank < writers;
      BlockPool blocks(1 + rank);
      BackgroundSave save(store, own, blocks, 1 + rank % 2);
      for (Index unit = 0; unit < store.model().unit_count(); ++unit) {
        if (between) between(rank, unit);
        save.unit(unit);
      }
      EXPECT_GT(save.wait().bytes, 0);
    });
  }

  [[nodiscard]] bool nothing_aside() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      if (entry.path().string().ends_with(kAsideSuffix)) return false;
    return true;
  }

  ModelConfig config_ = checkpoint_config("llama", false);
  TemporaryFolder folder_;
  CheckpointRig rig_;
};

}  // namespace megatrain::io
