#pragma once
/// @file
/// How fast this machine is at what a step of a model does.

#include <filesystem>
#include <optional>

#include "core/base/thread_pool.h"
#include "core/plan/rates.h"
#include "launcher/session/measure/host_update.h"
#include "launcher/session/measure/model_calls.h"

namespace megatrain::launcher {

struct Ceilings {
  /// What predictions divide by. Of products, attention and element-wise kernels: those of the
  /// model, weighted by how much time each takes of a micro-batch. `disk` is assumed unless it was
  /// measured.
  Rates rates;
  std::vector<MeasuredCall> calls;
  std::vector<MeasuredCall> slab_calls;
  Copies::Alone copies;
  HostUpdate update;
  bool disk_measured = false;
};

/// @param choices  the micro-batch and kernels to measure with
/// @param disk     a folder on the disk that checkpoints will go to; nullopt: not measured
/// @param gpus     of this machine, to measure what they copy together; 1: not measured
Ceilings measure_ceilings(Machine& machine, const Model& model, const Choices& choices,
                          ThreadPool& pool, const std::optional<std::filesystem::path>& disk,
                          int gpus);

}  // namespace megatrain::launcher
