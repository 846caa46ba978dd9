#include "core/base/processors.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <thread>

namespace megatrain {

namespace {

namespace fs = std::filesystem;

/// The first line of a file; empty when there is none.
std::string read_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// A number at the front of `text`, which is moved behind it.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(1);
  return true;
}

fs::path processor_folder(const fs::path& root, int processor) {
  return root / "sys/devices/system/cpu" / ("cpu" + std::to_string(processor));
}

/// The hardware threads of a processor's core; empty when they are not known.
std::string siblings(const fs::path& root, int processor) {
  const fs::path topology = processor_folder(root, processor) / "topology";
  const std::string list = read_line(topology / "core_cpus_list");
  return list.empty() ? read_line(topology / "thread_siblings_list") : list;
}

/// The node of each processor that a node names.
std::map<int, int> nodes(const fs::path& root) {
  std::map<int, int> nodes;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", none)) {
    const std::string name = entry.path().filename().string();
    std::string_view number = name;
    if (!number.starts_with("node")) continue;
    number.remove_prefix(4);
    const std::optional<int> node = take_number(number);
    if (!node || !number.empty()) continue;
    for (const int processor : parse_processor_list(read_line(entry.path() / "cpulist")))
      nodes[processor] = *node;
  }
  return nodes;
}

/// A size as the kernel writes it: "32768K".
Index parse_size(std::string_view text) {
  const std::optional<int> number = take_number(text);
  if (!number) return 0;
  if (text.starts_with('K')) return Index{*number} << 10;
  if (text.starts_with('M')) return Index{*number} << 20;
  return *number;
}

}  // namespace

std::vector<int> parse_processor_list(std::string_view text) {
  // More than any kernel has: a list that says so is broken.
  constexpr int kMostProcessors = 1 << 16;
  std::vector<int> processors;
  do {
    const std::optional<int> first = take_number(text);
    if (!first) break;
    const std::optional<int> last = take(text, '-') ? take_number(text) : first;
    if (!last || *last >= kMostProcessors) break;
    for (int processor = *first; processor <= *last; ++processor) processors.push_back(processor);
  } while (take(text, ','));
  return processors;
}

std::string processor_list(std::span<const int> processors) {
  std::string text;
  for (std::size_t i = 0; i < processors.size(); ++i) {
    const std::size_t first = i;
    while (i + 1 < processors.size() && processors[i + 1] == processors[i] + 1) ++i;
    if (!text.empty()) text += ',';
    text += std::to_string(processors[first]);
    if (i > first) text += '-' + std::to_string(processors[i]);
  }
  return text;
}

std::vector<int> affinity_mask(pid_t process) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> processors;
  if (sched_getaffinity(process, sizeof(mask), &mask) != 0) return processors;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor)
    if (CPU_ISSET(static_cast<std::size_t>(processor), &mask)) processors.push_back(processor);
  return processors;
}

std::vector<PhysicalCore> physical_cores(std::span<const int> processors, const fs::path& root) {
  const std::map<int, int> node_of = nodes(root);
  std::set<std::string> seen;
  std::vector<PhysicalCore> cores;
  for (const int processor : processors) {
    const std::string threads = siblings(root, processor);
    if (threads.empty()) return {};
    if (!seen.insert(threads).second) continue;
    const auto node = node_of.find(processor);
    cores.push_back({processor, node == node_of.end() ? 0 : node->second});
  }
  std::ranges::stable_sort(cores, {}, &PhysicalCore::node);
  return cores;
}

std::span<const PhysicalCore> part_of_cores(std::span<const PhysicalCore> cores, int rank,
                                            int sharers) {
  const auto begin = [&](int part) {
    return cores.size() * static_cast<std::size_t>(part) / static_cast<std::size_t>(sharers);
  };
  return cores.subspan(begin(rank), begin(rank + 1) - begin(rank));
}

bool can_pin(std::span<const int> processors) {
  bool allowed = true;
  // On a thread of its own, whose mask ends with it.
  std::thread([&] {
    for (const int processor : processors) {
      cpu_set_t mask;
      CPU_ZERO(&mask);
      CPU_SET(static_cast<std::size_t>(processor), &mask);
      allowed = allowed && sched_setaffinity(0, sizeof(mask), &mask) == 0;
    }
  }).join();
  return allowed;
}

Index last_level_cache(std::span<const int> processors, const fs::path& root) {
  std::map<std::string, Index> caches;  // by the processors that share one
  for (const int processor : processors) {
    int level = 0;
    fs::path last;
    std::error_code none;
    for (const auto& entry :
         fs::directory_iterator(processor_folder(root, processor) / "cache", none)) {
      const std::string text = read_line(entry.path() / "level");
      std::string_view number = text;
      const int own = take_number(number).value_or(0);
      if (own <= level) continue;
      level = own;
      last = entry.path();
    }
    if (level > 0)
      caches[read_line(last / "shared_cpu_list")] = parse_size(read_line(last / "size"));
  }
  Index bytes = 0;
  for (const auto& [sharers, size] : caches) bytes += size;
  return bytes;
}

}  // namespace megatrain
