#include "core/base/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "core/base/cgroup.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

/// The number after `key` in a file of "key number" lines.
std::optional<Index> find_number(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto rest = std::string_view(line).substr(key.size());
    const auto digits = rest.find_first_not_of(" \t");
    if (digits == 0 || digits == std::string_view::npos) continue;  // only a prefix of the name
    try {
      return std::stoll(std::string(rest.substr(digits)));
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

/// The number that a one-number file holds; nothing for "max" or a file that is not there.
std::optional<Index> read_number(const fs::path& path) {
  std::ifstream file(path);
  Index value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// The file names and keys that differ between the two versions of the memory controller.
struct MemoryFiles {
  const char* limit;
  const char* usage;
  const char* inactive_cache;
  const char* active_cache;
};
constexpr MemoryFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file", "total_active_file"};
constexpr MemoryFiles kVersion2{"memory.max", "memory.current", "inactive_file", "active_file"};

/// Lowers `memory` to what the cgroup leaves.
void apply_cgroup(const Cgroup& group, HostMemory& memory) {
  const MemoryFiles& files = group.unified ? kVersion2 : kVersion1;
  const auto limit = read_number(group.directory / files.limit);
  const auto usage = read_number(group.directory / files.usage);
  if (!limit || !usage) return;
  const fs::path statistics = group.directory / "memory.stat";
  const Index cache = find_number(statistics, files.inactive_cache).value_or(0) +
                      find_number(statistics, files.active_cache).value_or(0);
  const Index left = std::max<Index>(*limit - std::max<Index>(*usage - cache, 0), 0);
  if (left < memory.available) memory = {left, "the memory limit of cgroup " + group.name};
}

}  // namespace

HostMemory available_host_memory(const fs::path& root) {
  const auto kibibytes = find_number(root / "proc/meminfo", "MemAvailable:");
  if (!kibibytes) throw Error("cannot read MemAvailable from " + (root / "proc/meminfo").string());
  HostMemory memory{*kibibytes * 1024, "MemAvailable"};
  for (const Cgroup& group : cgroups(root, "memory")) apply_cgroup(group, memory);
  return memory;
}

void require_host_memory(std::string_view what, Index bytes) {
  const HostMemory memory = available_host_memory();
  if (bytes <= memory.available) return;
  throw UserError(fmt::format(
      "not enough host memory for {}: it needs {} ({} bytes), but {} ({} bytes) are available "
      "({}). "
      "Choose a smaller model or leaner state formats, end other programs, or raise the limit",
      what, format_bytes(bytes), bytes, format_bytes(memory.available), memory.available,
      memory.bound));
}

}  // namespace megatrain
