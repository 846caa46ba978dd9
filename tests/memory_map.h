#pragma once
/// @file
/// What the kernel says about this process's memory.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "core/base/types.h"

namespace megatrain {

/// False under a sanitizer, which keeps notes about every page that is touched and freed blocks for
/// a while: then the memory of the whole process says nothing about ours.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kProcessIsOurs = false;
#else
inline constexpr bool kProcessIsOurs = true;
#endif

/// A "Name:  N kB" line of /proc/self/status, in bytes.
inline Index status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  return 0;
}
inline Index resident_bytes() { return status_bytes("VmRSS"); }
inline Index virtual_bytes() { return status_bytes("VmSize"); }

/// The most that was resident at a time. @param forget  count from now on
inline Index peak_bytes(bool forget) {
  if (forget) std::ofstream("/proc/self/clear_refs") << 5;
  return status_bytes("VmHWM");
}

/// Bytes of [data, data + bytes) that are mapped, or resident where `resident`; mappings that also
/// reach beyond count by their part inside (mapped) or in proportion (resident).
inline Index range_bytes(const void* data, Index bytes, bool resident) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const auto end = begin + static_cast<std::uintptr_t>(bytes);
  std::ifstream file("/proc/self/smaps");
  Index total = 0;
  std::uintptr_t inside = 0;
  std::uintptr_t size = 1;
  for (std::string line; std::getline(file, line);) {
    unsigned long first = 0;
    unsigned long last = 0;
    long kibibytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2) {
      size = last - first;
      inside = std::min<std::uintptr_t>(last, end) - std::max<std::uintptr_t>(first, begin);
      if (last <= begin || first >= end) inside = 0;
      if (!resident) total += static_cast<Index>(inside);
    } else if (resident && std::sscanf(line.c_str(), "Rss: %ld kB", &kibibytes) == 1) {
      total += static_cast<Index>(static_cast<double>(kibibytes) * 1024 *
                                  static_cast<double>(inside) / static_cast<double>(size));
    }
  }
  return total;
}
inline Index mapped_bytes(const void* data, Index bytes) { return range_bytes(data, bytes, false); }
inline Index resident_bytes(const void* data, Index bytes) {
  return range_bytes(data, bytes, true);
}

}  // namespace megatrain
