#pragma once
/// @file
/// A checkpoint folder, open for reading: everything in it is checked against the manifest.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/block_pool.h"
#include "io/checkpoint/manifest.h"
#include "io/direct_file.h"
#include "io/hdf5/hdf5_file.h"

namespace megatrain::io {

/// A checkpoint that is not what it was when it was written. Another one may still be whole.
class DamagedCheckpoint : public UserError {
 public:
  using UserError::UserError;
};

/// Largest small file of a checkpoint that is read: a tokenizer of a large vocabulary takes tens of
/// megabytes, a manifest of 10^12 parameters about 20.
inline constexpr Index kLargestSideFile = Index{1} << 28;

class Checkpoint {
 public:
  /// A dataset and where its values are.
  struct Tensor {
    const ManifestShard* shard = nullptr;
    const ManifestDataset* entry = nullptr;
    const Hdf5Dataset* dataset = nullptr;
    const Hdf5File* file = nullptr;
    const DirectFile* direct = nullptr;
  };

  /// Opens a finished checkpoint: marker, manifest, every file's size, and every shard's metadata
  /// (checksum, names, types, shapes) are checked; values are not read.
  /// @throws DamagedCheckpoint naming file and tensor; UserError when it is no checkpoint at all
  explicit Checkpoint(std::filesystem::path folder);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const Manifest& manifest() const { return *manifest_; }
  /// By path in the shards ("/params/..."), sorted.
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  /// nullptr when there is none.
  [[nodiscard]] const Tensor* find(const std::string& path) const;
  /// A small file of the folder that the manifest lists, checked.
  /// @throws DamagedCheckpoint; UserError when the manifest lists no such file
  [[nodiscard]] std::string read_file(std::string_view name) const;

  /// One block of a tensor's values, checked. Threads may read at the same time.
  /// @param into  where the bytes go; the result lies in it
  /// @throws DamagedCheckpoint naming file, tensor and place
  [[nodiscard]] std::span<const std::byte> read_block(const Tensor& tensor, Index block,
                                                      BlockPool::Block& into) const;

 private:
  struct Shard;
  void open_shard(const ManifestShard& manifest);

  std::filesystem::path folder_;
  std::unique_ptr<Manifest> manifest_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::map<std::string, Tensor> tensors_;
};

/// The manifest of a finished checkpoint. @param sealed  false: its marker need not fit
/// @throws as Checkpoint
Manifest read_manifest(const std::filesystem::path& folder, bool sealed = true);

}  // namespace megatrain::io
