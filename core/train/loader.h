#pragma once
/// @file
/// Prepares the next step's tokens while the device works on this one's.

#include <future>

#include "core/train/batch.h"

namespace megatrain {

/// One batch ahead, never more.
class Loader {
 public:
  /// @param first_sample  samples drawn before: where the data order continues
  Loader(const Choices& choices, const ModelConfig& config, const TokenSource& source,
         std::uint64_t seed, Index first_sample, const DataShare& share = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch. @throws what reading the data threw
  Batch next();
  /// Samples drawn by next() so far on all ranks, those before this loader included: what a
  /// checkpoint saves.
  [[nodiscard]] Index samples_drawn() const { return drawn_; }

 private:
  std::future<Batch> prepare(Index first_sample) const;

  const Choices& choices_;
  const ModelConfig& config_;
  const TokenSource& source_;
  std::uint64_t seed_;
  DataShare share_;
  Index drawn_;
  std::future<Batch> ahead_;
};

}  // namespace megatrain
