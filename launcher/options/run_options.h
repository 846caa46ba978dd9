#pragma once
/// @file
/// What `train` and `plan` are asked to do: plain data with defaults, and the tables that fill it.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/options/option.h"

namespace megatrain::launcher {

/// On what to run. Used by every command.
struct MachineOptions {
  std::optional<std::string> device;       ///< "cpu", "cuda"; absent: cuda when there is a GPU
  std::optional<ByteCount> device_memory;  ///< absent: what the machine can spare
  std::optional<ByteCount> host_memory;    ///< absent: what is available
  Index threads = 0;                       ///< 0: one a usable core, less one beside a GPU
  std::optional<std::string> compute;      ///< "fp32", "bf16"; absent: the faster one
  std::string masters = "fp32";            ///< "fp32", "bf16"; where one trains
  std::string moments = "fp32";            ///< the same, of AdamW
  bool deterministic = false;
};

/// When and how `train` saves, and what it goes on from.
struct CheckpointOptions {
  Index save_every = 0;  ///< steps; 0: only when a signal asks
  Index keep_last = 2;
  Index keep_every = 0;                  ///< steps; 0: none
  std::optional<ByteCount> save_buffer;  ///< absent: the host memory that the plan leaves
  std::optional<ByteCount> save_rate;    ///< a second; absent: as fast as the disk goes
  std::optional<ByteCount> shard_size;
  bool verify_saves = false;
  std::string save_failure = "continue";
  std::string resume = "auto";
  std::vector<std::string> accept_change;
};

/// `train` and `plan`.
struct RunOptions {
  std::string model;
  std::vector<std::string> data, val_data;
  double val_fraction = 0;
  Index val_every = 0;
  std::string out;
  bool overwrite = false;
  std::optional<std::string> config;

  Index steps = 1000;
  Index seq_len = 1024;
  Index batch_tokens = 16384;
  std::optional<Index> micro_batch;

  double lr = 3e-4;
  double min_lr = 0;
  std::string schedule = "cosine";
  Index warmup = 0;
  double clip = 1;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  std::uint64_t seed = 0;

  CheckpointOptions checkpoints;
  Index tensor_parallel = 1;   ///< ranks that have a part of each layer: a tensor group
  Index shard_group = 0;       ///< tensor groups that share a copy of the model; 0: those of a node
  Index rank_timeout = 600;    ///< seconds
  Index check_replicas = 500;  ///< steps; 0: never
  std::optional<Index> ranks;  ///< plan only: of the run that is planned; absent: a tensor group
  MachineOptions machine;
  std::optional<Index> slots, segment;
  std::vector<std::string> force;
  std::optional<std::string> key, rates, trace;
  std::optional<double> peak;  ///< FLOP/s
  bool json = false;           ///< plan only
};

/// Tables over the fields of `options`, which must outlive them.
std::vector<Option> train_table(RunOptions& options);
/// The options that decide what is learned, as texts: what a checkpoint records and a resumed run
/// must repeat.
std::vector<std::pair<std::string, std::string>> decisive_options(const RunOptions& options);
std::vector<Option> plan_table(RunOptions& options);

}  // namespace megatrain::launcher
