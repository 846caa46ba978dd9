#pragma once
/// @file
/// How fast a disk takes a checkpoint.

#include <filesystem>

namespace megatrain::launcher {

/// Bytes/s of direct writes into a file of `folder`, which goes afterwards. Takes some seconds and
/// 2 GiB of disk at most. @throws UserError when it cannot be written
double measure_disk(const std::filesystem::path& folder);

}  // namespace megatrain::launcher
