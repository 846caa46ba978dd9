#pragma once
/// @file
/// How fast the machine is: what predictions divide by.

#include <filesystem>
#include <string>

#include "core/base/master_format.h"
#include "core/device/device.h"

namespace megatrain {

/// Sustained rates. Read from a file that `megatrain bench` wrote, or assumed from the data sheet
/// of a typical machine; predictions say which.
struct Rates {
  std::string source = "assumed";
  double flops = 0;               ///< matrix products of this model's type and shapes, FLOP/s
  double attention = 0;           ///< forward, FLOP/s over the pairs that a causal mask leaves
  double attention_backward = 0;  ///< the same
  double device_bandwidth = 0;    ///< element-wise kernels, bytes/s read plus written
  /// The same of kernels that walk a unit's slab: updates on the device, gradients on their way
  /// down. Those of a small micro-batch take as long as their launch, these never.
  double slab_bandwidth = 0;
  double to_device = 0;            ///< host to device copies, bytes/s
  double to_host = 0;              ///< device to host copies, bytes/s
  double update = 0;               ///< AdamW with moments in fp32, elements/s
  double update_bf16_moments = 0;  ///< and in bf16
  double update_bf16_masters = 1;  ///< times as fast with masters in bf16
  // All three share the host's memory. What is left of each while copies go both ways and AdamW
  // runs, a part of the rate above:
  double to_device_beside = 1;
  double to_host_beside = 1;
  double update_beside = 1;
  double launch = 0;  ///< seconds to issue one kernel or copy
  double disk = 0;    ///< direct writes of large blocks, bytes/s
  // Of several ranks. A file that was measured with one lacks them; those of assumed_rates stand
  // for them then.
  double peers = 0;        ///< what a rank receives from its shard group, bytes/s
  double network = 0;      ///< what a rank receives from its replicas, bytes/s
  double host_memory = 0;  ///< copies of all ranks of a machine together, each way, bytes/s

  [[nodiscard]] double update_of(MasterFormat master, DType moments) const {
    const double whole = moments == DType::bf16 ? update_bf16_moments : update;
    return master == MasterFormat::bf16 ? whole * update_bf16_masters : whole;
  }
};

/// Rates of a typical machine of the kind.
Rates assumed_rates(DeviceKind kind, DType compute);

/// Rates of a rank whose machine is shared by the `ranks` of its shard group: copies share the
/// host's memory, and updates its cores.
Rates shared_by(Rates rates, Index ranks);

/// Reads "name = value" lines. Older files lack some: attention is then as fast as matrix products,
/// slabs are walked like activations, updates with moments or masters in bf16 are as fast as with
/// fp32, and copies and updates do not slow each other. @throws UserError naming the file and line
Rates read_rates(const std::filesystem::path& file);
/// What read_rates reads.
std::string format_rates(const Rates& rates);

}  // namespace megatrain
