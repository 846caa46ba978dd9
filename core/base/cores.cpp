#include "core/base/cores.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <thread>

#include "core/base/cgroup.h"
#include "core/base/processors.h"

namespace megatrain {

namespace {

std::optional<double> read_number(const std::filesystem::path& path) {
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// Cores' worth of time that a cgroup may take; nothing where it sets no limit.
std::optional<double> quota(const Cgroup& group) {
  std::optional<double> time;
  std::optional<double> period;
  if (group.unified) {
    // "200000 100000"; "max 100000" is no limit and no number.
    std::ifstream file(group.directory / "cpu.max");
    double allowed = 0;
    double each = 0;
    if (file >> allowed >> each) {
      time = allowed;
      period = each;
    }
  } else {
    time = read_number(group.directory / "cpu.cfs_quota_us");  // -1: no limit
    period = read_number(group.directory / "cpu.cfs_period_us");
  }
  if (!time || !period || !(*time > 0) || !(*period > 0)) return std::nullopt;
  return *time / *period;
}

}  // namespace

Cores usable_cores(const std::filesystem::path& root, pid_t process) {
  Cores cores{static_cast<int>(std::max(1U, std::thread::hardware_concurrency())), "the processor"};
  if (const auto mask = static_cast<int>(affinity_mask(process).size()); mask > 0) {
    const bool all = mask == sysconf(_SC_NPROCESSORS_ONLN);
    cores = {mask, all ? "the processor" : "the affinity mask"};
  }
  for (const Cgroup& group : cgroups(root, "cpu")) {
    const auto limit = quota(group);
    if (limit && std::ceil(*limit) < cores.count)
      cores = {static_cast<int>(std::ceil(*limit)), "the CPU quota of cgroup " + group.name, true};
  }
  return cores;
}

int share_of_cores(int own, int starter, int sharers) {
  return std::max(std::min(own, std::max(own, starter) / sharers), 1);
}

}  // namespace megatrain
