#pragma once
/// @file
/// Small stores with uneven contents, and what is in them.

#include <memory>
#include <vector>

#include "core/store/host_store.h"
#include "io/checkpoint/background_save.h"
#include "io/checkpoint/training_record.h"
#include "io/hf_folder.h"

namespace megatrain::io {

/// A model of odd sizes.
ModelConfig checkpoint_config(std::string_view model_type, bool tied);

/// One that up to four parts can have, with a vocabulary that they do not divide.
ModelConfig divisible_config(std::string_view model_type, bool tied);

/// Stores, and saves of them, that share a device and a pool.
class CheckpointRig {
 public:
  std::unique_ptr<HostStore> make_store(const ModelConfig& config,
                                        MasterFormat format = MasterFormat::split,
                                        const Slicing& slicing = {},
                                        const Partition& partition = {});
  /// How the stores that are made from now on keep their moments.
  DType moments = DType::f32;
  /// Every value of every state depends on `seed`; among them denormals and both zeros.
  /// A store of slices, or of a part, gets its share of what a whole one would.
  void fill(HostStore& store, std::uint32_t seed);
  /// Hands every unit over, waits, and returns the folder.
  std::filesystem::path save(const HostStore& store, SaveOptions options);

  ThreadPool pool{2};
  BlockPool blocks{4};

 private:
  std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1});
};

/// A save in several shards with all that a checkpoint of training has beside them; its record says
/// nothing but the step and how moments are kept.
SaveOptions training_checkpoint(const ModelConfig& config, std::filesystem::path folder, Index step,
                                DType moments = DType::f32);

/// The slabs of the store that a checkpoint holds, byte by byte.
std::vector<std::byte> slabs(const HostStore& store);

}  // namespace megatrain::io
