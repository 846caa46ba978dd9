#include "core/base/cgroup.h"

#include <fmt/format.h>

#include <fstream>

namespace megatrain {

namespace fs = std::filesystem;

std::vector<Cgroup> cgroups(const fs::path& root, std::string_view controller) {
  const std::string wanted = fmt::format(",{},", controller);
  std::vector<Cgroup> found;
  // Lines of "id:controllers:path"; version 2 is "0::path".
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && fmt::format(",{},", controllers).find(wanted) == std::string::npos) continue;
    fs::path mount = root / "sys/fs/cgroup";
    if (!unified) mount /= controller;
    for (fs::path group = line.substr(second + 1);; group = group.parent_path()) {
      const bool top = !group.has_relative_path();
      found.push_back({mount / group.relative_path(), top ? "/" : group.string(), unified});
      if (top) break;
    }
  }
  return found;
}

}  // namespace megatrain
