#pragma once
/// @file
/// Takes a checkpoint as it is after other tools edited its files.

#include <filesystem>
#include <string>
#include <vector>

#include "io/pieces.h"

namespace megatrain::io {

/// Something of a checkpoint that is not what its manifest said.
struct ResealedItem {
  std::string file;
  std::string tensor;  ///< empty: the file itself, or the metadata of a shard
};

/// Computes all checksums of a finished checkpoint anew and writes manifest and marker. Each shard
/// must still hold the tensors that it held, and they must fit the model of config.json; where they
/// lie, and in what of the types that are read, may have changed. Nothing is written unless
/// everything was read.
/// @returns what has changed since it was sealed, in the manifest's order
/// @throws UserError
std::vector<ResealedItem> reseal(const std::filesystem::path& folder, ThreadPool& pool,
                                 const Progress& progress = {});

}  // namespace megatrain::io
