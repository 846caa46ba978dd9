#include "launcher/output_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/base/error.h"
#include "io/atomic_file.h"

namespace megatrain::launcher {

void check_output_file(std::string_view option, const std::optional<std::string>& file) {
  if (!file) return;
  const std::filesystem::path path = *file;
  if (std::filesystem::is_directory(path))
    throw UserError(fmt::format("{} {} is a folder; name a file", option, *file));
  if (path.has_parent_path() && !std::filesystem::is_directory(path.parent_path()))
    throw UserError(fmt::format("{} {}: the folder {} does not exist", option, *file,
                                path.parent_path().string()));
  try {
    io::check_writable(path);
  } catch (const Error& error) {
    throw UserError(Error::with_context(option, error.what()));
  }
}

}  // namespace megatrain::launcher
