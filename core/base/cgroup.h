#pragma once
/// @file
/// The control groups that bound this process.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

/// A directory of limits.
struct Cgroup {
  std::filesystem::path directory;
  std::string name;      ///< "/job/step"; "/" at the top
  bool unified = false;  ///< version 2, whose files have other names
};

/// The groups whose limits hold for this process: its own and those above it, of version 2 and of
/// the version 1 controller ("memory", "cpu"). Inside a container a path may name a directory that
/// is not mounted; the ones above it, which are, count then.
/// @param root  where /proc and /sys are found; tests bring their own
std::vector<Cgroup> cgroups(const std::filesystem::path& root, std::string_view controller);

}  // namespace megatrain
