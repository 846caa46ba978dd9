#pragma once
/// @file
/// The owner of every persistent state of a model: weights, gradients, optimizer states, one slab
/// of each a unit, in exact-size arenas of host memory that devices can copy from and to.

#include <functional>
#include <memory>
#include <span>

#include "core/base/master_format.h"
#include "core/base/thread_pool.h"
#include "core/device/device.h"
#include "core/model/model.h"
#include "core/store/host_arena.h"
#include "core/store/slicing.h"

namespace megatrain {

/// What is held of a model.
enum class StoreContents : std::uint8_t {
  training,  ///< masters, gradients and optimizer states
  weights,   ///< what streams, and nothing else: enough to run forward
};

struct StoreOptions {
  StoreContents contents = StoreContents::training;
  MasterFormat master = MasterFormat::split;
  /// Of both moments: fp32, or bf16 that updates round by chance (core/ops/adamw.h).
  DType moments = DType::f32;
  Index gradient_bytes = 2;  ///< per element: 2 (bf16 wire) or 4 (fp32 wire, or several waves)
  Slicing slicing = {};      ///< the part of every slab that is held; the rest is other ranks'
  /// Called with bytes touched so far and in all while the arenas are made.
  std::function<void(Index, Index)> progress = {};
};

/// Bytes that a store of `model` maps, by name; what the planner prints and the store allocates.
/// Slabs are padded to kSlabAlignment elements, so each is a whole number of 4 KiB pages.
struct StoreBytes {
  Index weights = 0, remainder = 0, gradient = 0, exp_avg = 0, exp_avg_sq = 0;
  [[nodiscard]] Index total() const {
    return weights + remainder + gradient + exp_avg + exp_avg_sq;
  }
};
/// @throws UserError when the size overflows 63 bits
StoreBytes store_bytes(const Model& model, MasterFormat master, Index gradient_bytes,
                       StoreContents contents = StoreContents::training,
                       const Slicing& slicing = {}, DType moments = DType::f32);

class HostStore {
 public:
  /// Maps, touches in parallel and registers the arenas (core/store/host_arena.h); everything is
  /// zero. Keeps a copy of `model`; `device` must outlive the store.
  /// @throws UserError when the machine has not the memory, before anything is mapped
  HostStore(const Model& model, const StoreOptions& options, Device& device, ThreadPool& pool);
  ~HostStore();
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  [[nodiscard]] const Model& model() const;
  [[nodiscard]] StoreContents contents() const;
  [[nodiscard]] MasterFormat master_format() const;
  [[nodiscard]] DType moment_type() const;
  [[nodiscard]] StoreBytes bytes() const;
  /// What making the arenas took, all of them together.
  [[nodiscard]] ArenaSeconds seconds() const;
  [[nodiscard]] Index gradient_bytes() const;  ///< per element; 0 where none are held
  [[nodiscard]] const Slicing& slicing() const;
  /// The elements of a parameter that this store holds.
  [[nodiscard]] ElementRange held(Index unit, const ParamDesc& param) const;

  // Slices of a unit's slabs: element ParamDesc::offset of the slab is that of the slice less
  // slicing().begin(). What is not held is nullptr.
  [[nodiscard]] std::byte* weights(Index unit) const;       ///< weight_type(master_format())
  [[nodiscard]] std::int16_t* remainder(Index unit) const;  ///< training with split masters
  [[nodiscard]] std::byte* gradient(Index unit) const;      ///< gradient_bytes an element
  [[nodiscard]] std::byte* exp_avg(Index unit) const;       ///< both moments: moment_type()
  [[nodiscard]] std::byte* exp_avg_sq(Index unit) const;

  /// Reads or writes the fp32 master of elements [first, first + values.size()) of a parameter, all
  /// of them held.
  /// Where only the bf16 that streams is held, it is the master, and writing rounds to it as
  /// split_master does. Threads may work on different elements at once.
  /// @throws UserError naming the first value that is not finite or whose bf16 is not; in all
  ///         formats, and before anything is written
  void read_master(Index unit, const ParamDesc& param, Index first, std::span<float> values) const;
  void write_master(Index unit, const ParamDesc& param, Index first, std::span<const float> values);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Fills every master that is held with its initial value (core/model/model.h).
void initialize(HostStore& store, std::uint64_t seed, ThreadPool& pool);

}  // namespace megatrain
