#pragma once
/// @file
/// manifest.json: what a checkpoint consists of, and the checksum of every byte of it. It names no
/// time, host or number of processes: equal states have equal manifests.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "io/checkpoint/checksum.h"
#include "io/file_type.h"

namespace megatrain::io {

/// The files whose names are fixed.
inline constexpr std::string_view kManifestName = "manifest.json";
/// Holds the checksum of the manifest; written last, so a folder that has it is whole.
inline constexpr std::string_view kCompleteName = "COMPLETE";

/// A dataset of a shard. Where its bytes lie is the HDF5 file's to say.
struct ManifestDataset {
  std::string path;  ///< "/params/model.norm.weight"
  FileType type = FileType::f32;
  std::vector<Index> shape;
  std::vector<Checksum> blocks;  ///< of each block of Manifest::block_bytes; the last may be short
  [[nodiscard]] Index bytes() const;
  bool operator==(const ManifestDataset&) const = default;
};

struct ManifestShard {
  std::string name;  ///< "shard_00000.h5"
  Index bytes = 0;
  Checksum metadata = 0;  ///< of all bytes that belong to no dataset, in file order
  std::vector<ManifestDataset> datasets;
  bool operator==(const ManifestShard&) const = default;
};

/// A small file, held and checked as a whole.
struct ManifestFile {
  std::string name;
  Index bytes = 0;
  Checksum checksum = 0;
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  Index step = 0;  ///< optimizer steps done; 0 for converted weights
  Index block_bytes = 0;
  std::vector<ManifestFile> files;
  std::vector<ManifestShard> shards;
  /// Other names of tied tensors, to the name they are stored under.
  std::map<std::string, std::string> aliases;
  bool operator==(const Manifest&) const = default;
};

std::string to_json(const Manifest& manifest);
/// Strict: unknown keys, wrong types, other versions, names that lead out of the folder, sizes that
/// overflow and numbers of blocks that do not fit their dataset are refused.
/// @param source  the file, for messages. @throws UserError
Manifest parse_manifest(std::string_view text, std::string_view source);

}  // namespace megatrain::io
