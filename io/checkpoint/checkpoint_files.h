#pragma once
/// @file
/// What lies beside the shards of a checkpoint, and what makes it whole.

#include <filesystem>
#include <span>

#include "io/checkpoint/manifest.h"
#include "io/hf_folder.h"

namespace megatrain::io {

/// All shards as one HDF5 file of links, for people and tools. Nothing here reads it, so it has no
/// place in the manifest: a checkpoint is whole without it.
inline constexpr std::string_view kViewName = "all.h5";

/// Writes `files`, lists them in `manifest`, and writes the view, the manifest and the marker, all
/// synced. The shards must be there and be listed.
void write_checkpoint_files(const std::filesystem::path& folder, std::span<const SideFile> files,
                            Manifest& manifest);
/// Writes the manifest and its marker anew.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);

}  // namespace megatrain::io
