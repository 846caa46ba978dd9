#pragma once
/// @file
/// Folders: what lies in them, and what room their disk has.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "io/file.h"

namespace megatrain::io {

/// The names in a folder; none when there is no such folder. A link that leads nowhere is there all
/// the same: what it led to may come back. @throws UserError, Error when it cannot be read
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// Whether `path`, links resolved, is `folder` or lies inside it. Neither need exist.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder);

/// Whether `path` still names what was opened: it may have been removed or replaced since.
bool is_name_of(const std::filesystem::path& path, const FileDescriptor& opened);

/// Bytes that the disk of a folder has left, which may be yet to be made; nullopt where the system
/// does not say.
std::optional<Index> available_disk(const std::filesystem::path& folder);

}  // namespace megatrain::io
