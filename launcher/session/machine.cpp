#include "launcher/session/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/host_memory.h"

namespace megatrain::launcher {

namespace {

/// Kernels that the driver and the libraries load when they first run, in the first step.
/// Measured: about 205 MiB on an H200 with cuBLAS 13 and cuDNN 9.14.
constexpr Index kLoadedAtFirstUse = Index{256} << 20;
/// What a CUDA context with the libraries takes on a large GPU, for plans made without one.
constexpr Index kAssumedReserve = Index{1} << 30;

/// Of the host memory that is free, what a plan leaves: the driver's records of pinned pages, what
/// libraries and the export take, and the page cache without which programs are read again and
/// again. Measured: with 246 of 250 GiB planned, steps took twice as long and the export was
/// killed.
Index plannable(Index available) { return available - available / 20; }

std::string_view default_device() { return cuda_device_count() > 0 ? "cuda" : "cpu"; }

/// bf16 where products in it are faster: on GPUs, and on processors with matrix units for it. A
/// rule and never a measurement, because the type decides bits.
DType default_compute(DeviceKind kind, const std::string& numerics) {
  const bool matrix_units = numerics.find("amx") != std::string::npos;
  return kind == DeviceKind::cuda || matrix_units ? DType::bf16 : DType::f32;
}

/// Ranks of a machine take its GPUs in turn; a launcher that shows each its own shows one.
int gpu_of(const NodeShare& share) {
  const int count = cuda_device_count();
  if (count > 1 && share.ranks > count)
    throw UserError(fmt::format(
        "{} ranks on a machine with {} GPUs: each rank needs one of its own", share.ranks, count));
  return count > 1 ? static_cast<int>(share.rank) : 0;
}

void choose_threads(Machine& machine, Index wanted) {
  constexpr Index kMostThreads = 4096;
  if (wanted > kMostThreads)
    throw UserError(fmt::format("--threads is {}; at most {} make sense", wanted, kMostThreads));
  const HostCores cores = find_host_cores();
  machine.threads =
      choose_host_threads(cores, wanted, machine.kind, static_cast<int>(machine.share.rank),
                          static_cast<int>(machine.share.ranks));
  if (machine.kind == DeviceKind::cuda && wanted == 0)
    if (std::string note = shortage(machine.threads, cores, static_cast<int>(machine.share.ranks));
        !note.empty())
      machine.notes.push_back(std::move(note));
  if (machine.threads.count > cores.own.count)
    machine.notes.push_back(fmt::format("--threads {} share {} core{}, which is what {} allows",
                                        wanted, cores.own.count, cores.own.count == 1 ? "" : "s",
                                        cores.own.bound));
}

void choose_compute(Machine& machine, const MachineOptions& options) {
  if (options.compute) {
    machine.compute = *options.compute == "bf16" ? DType::bf16 : DType::f32;
  } else {
    machine.compute = default_compute(machine.kind, machine.numerics);
    if (machine.kind == DeviceKind::cpu)
      machine.notes.push_back(fmt::format(
          "computes in {}, because this processor has {}bf16 matrix units (--compute chooses)",
          megatrain::name(machine.compute), machine.compute == DType::bf16 ? "" : "no "));
  }
  machine.master = options.masters == "bf16" ? MasterFormat::bf16 : whole_masters(machine.compute);
  if (weight_type(machine.master) != machine.compute)
    throw UserError(
        "--masters bf16 keeps what streams in bf16, but this run computes in fp32. Give --compute "
        "bf16, or leave --masters out");
  machine.moments = options.moments == "bf16" ? DType::bf16 : DType::f32;
}

/// --host-memory, which a plan alone may have of a machine that is not this one.
Index given_host_memory(Index bytes, Presence presence, const NodeShare& share) {
  if (presence == Presence::planned) return bytes;
  const HostMemory memory = available_host_memory();
  if (bytes > memory.available / share.ranks)
    throw UserError(
        fmt::format("--host-memory is {}, but {} are available ({}){}. Lower it or leave it out",
                    format_bytes(bytes), format_bytes(memory.available), memory.bound,
                    share.ranks > 1 ? fmt::format(", for {} ranks", share.ranks) : ""));
  return bytes;
}

/// What the host store is taken to need before there is a plan.
Index expected_store(const Machine& machine, const Model& model, StoreContents contents) {
  const Index gradient_bytes = size_of(machine.compute);
  return store_bytes(model, machine.master, gradient_bytes, contents, machine.share.slicing,
                     machine.moments)
      .total();
}

/// The CPU device's memory is the host's: the store comes first, then the rest is halved.
void share_host_memory(Machine& machine, const MachineOptions& options, const Model& model,
                       StoreContents contents) {
  const Index store = expected_store(machine, model, contents);
  const Index available = machine.host_memory;
  if (options.device_memory) {
    machine.device_memory = options.device_memory->bytes;
    if (machine.device_memory > available)
      throw UserError(
          fmt::format("--device-memory is {}, but only {} of host memory are available, and the "
                      "CPU device takes its "
                      "memory there. Lower --device-memory or leave it out",
                      format_bytes(machine.device_memory), format_bytes(available)));
  } else {
    machine.device_memory = std::max<Index>(available - store, 0) / 2;
  }
  // At least a byte: 0 would mean that it is not known.
  machine.host_memory = std::max<Index>(available - machine.device_memory, 1);
}

void budget_gpu(Machine& machine, const MachineOptions& options) {
  if (machine.device) {
    machine.device_reserve = machine.device->reserve_bytes() + kLoadedAtFirstUse;
  } else {
    machine.device_reserve = kAssumedReserve;
    machine.notes.push_back(
        fmt::format("there is no GPU here: a reserve of {} for the driver and libraries is assumed",
                    format_bytes(kAssumedReserve)));
  }
  if (options.device_memory)
    machine.device_memory = options.device_memory->bytes;
  else if (machine.device)
    // What other processes hold is not ours to plan with.
    machine.device_memory = machine.device->free_bytes() + machine.device->reserve_bytes();
  else
    throw UserError("a plan for a GPU that is not here needs its memory: give --device-memory");
}

void open_device(Machine& machine) {
  if (machine.kind == DeviceKind::cpu)
    machine.device = make_cpu_device({.threads = machine.threads.count});
  else
    machine.device = make_cuda_device({.ordinal = gpu_of(machine.share)});
  const DeviceInfo& info = machine.device->info();
  machine.name = info.name;
  machine.numerics = info.numerics;
}

ops::AttentionShape attention_shape(const Machine& machine, const ModelConfig& config, Index layer,
                                    Index sequence) {
  return {.batch = 1,
          .sequence = sequence,
          .query_heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .window = config.window(layer),
          .scale = 1,
          .type = machine.compute};
}

}  // namespace

Machine open_machine(const MachineOptions& options, const Model& model, Presence presence,
                     StoreContents contents, const NodeShare& share) {
  Machine machine;
  machine.share = share;
  machine.kind = options.device.value_or(std::string(default_device())) == "cuda" ? DeviceKind::cuda
                                                                                  : DeviceKind::cpu;
  choose_threads(machine, options.threads);
  const bool here =
      machine.kind == DeviceKind::cpu || presence == Presence::required || cuda_device_count() > 0;
  if (here)
    open_device(machine);
  else
    machine.name = "a GPU that is not here";
  if (options.host_memory)
    machine.host_memory = given_host_memory(options.host_memory->bytes, presence, share);
  else if (here)
    machine.host_memory = plannable(available_host_memory().available) / share.ranks;
  else
    machine.notes.emplace_back("its host's memory is not known and not checked (--host-memory)");
  choose_compute(machine, options);
  if (here) {
    machine.ops.emplace(ops::make_ops(*machine.device, machine.compute));
    if (machine.compute == DType::bf16) machine.peak_flops = machine.device->info().peak_bf16_flops;
  }
  if (machine.kind == DeviceKind::cpu)
    share_host_memory(machine, options, model, contents);
  else
    budget_gpu(machine, options);
  return machine;
}

void measure_again(Machine& machine, const MachineOptions& options) {
  if (machine.kind == DeviceKind::cuda && machine.device) budget_gpu(machine, options);
}

Index sufficient_host_memory(const MachineOptions& options, const Machine& machine,
                             const Model& model, const PlanBytes& plan, StoreContents contents) {
  if (machine.kind == DeviceKind::cuda) return plan.host();
  if (options.device_memory) return plan.host() + options.device_memory->bytes;
  // share_host_memory() the other way round: each half must hold its part.
  const Index store = expected_store(machine, model, contents);
  return store + 2 * std::max(plan.device, plan.host() - store);
}

ops::AttentionBackend choose_attention(const Machine& machine, const Model& model, Index sequence,
                                       bool deterministic, std::string& why) {
  using ops::AttentionBackend;
  if (machine.kind == DeviceKind::cpu) return AttentionBackend::own;
  const AttentionBackend fastest =
      deterministic ? AttentionBackend::cudnn_deterministic : AttentionBackend::cudnn;
  const ModelConfig& config = model.part_config();
  if (!machine.ops) {
    // What cuDNN serves on recent GPUs.
    const bool served =
        machine.compute == DType::bf16 && config.head_dim % 8 == 0 && config.head_dim <= 128;
    why = "assumed without a GPU";
    return served ? fastest : AttentionBackend::own;
  }
  for (Index layer = 0; layer < config.layers; ++layer) {
    why =
        machine.ops->attention_refusal(attention_shape(machine, config, layer, sequence), fastest);
    if (!why.empty()) return AttentionBackend::own;
  }
  return fastest;
}

void require_attention(const Machine& machine, const Model& model, Index sequence,
                       ops::AttentionBackend backend) {
  if (!machine.ops) return;
  const ModelConfig& config = model.part_config();
  for (Index layer = 0; layer < config.layers; ++layer) {
    const std::string why =
        machine.ops->attention_refusal(attention_shape(machine, config, layer, sequence), backend);
    if (!why.empty())
      throw UserError(fmt::format("--force attention={}: {}", ops::name(backend), why));
  }
}

}  // namespace megatrain::launcher
