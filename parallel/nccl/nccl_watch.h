#pragma once
/// @file
/// The threads that watch the communicators of one GPU, and end them all when one is in trouble.

#include <memory>
#include <thread>

#include "parallel/nccl/nccl_end.h"

namespace megatrain {

class NcclWatch {
 public:
  explicit NcclWatch(CudaDevice& device);
  /// Does not wait for ever: a thread that a failed GPU holds is left behind.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// After trouble the end is ended at once.
  void add(const std::shared_ptr<NcclEnd>& end);
  void remove(const NcclEnd* end);

 private:
  struct State;
  static void observe(const std::shared_ptr<State>& state);
  static void keep(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
  std::thread observer_;
  std::thread keeper_;
};

}  // namespace megatrain
