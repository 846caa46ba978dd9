#pragma once
/// @file
/// A set of named tensors whose values can be read in pieces, whatever kind of file holds them.

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/state_layout.h"
#include "io/file_type.h"

namespace megatrain::io {

struct NamedTensor {
  std::string name;  ///< "model.norm.weight"; in HDF5 files with its groups: "/params/..."
  FileType type = FileType::f32;  ///< without meaning when refused
  std::vector<Index> shape;
  Index bytes = 0;           ///< of the values; 0 when refused
  std::string file;          ///< name of the file that holds it
  std::string refusal = {};  ///< why the values cannot be read; empty: they can
  /// Fills `out` with the values' bytes from `first` on. Threads may read at the same time; the
  /// function keeps the file open. @throws UserError, among others with the refusal
  std::function<void(Index first, std::span<std::byte> out)> read;

  [[nodiscard]] Index elements() const { return refusal.empty() ? bytes * 8 / bits_of(type) : 0; }
  /// Belongs to an optimizer's state in a checkpoint, not to the model.
  [[nodiscard]] bool is_optimizer_state() const { return name.starts_with(kOptimizerGroup); }
};

struct TensorSet {
  enum class Kind : std::uint8_t { hdf5, checkpoint, hf_folder, safetensors };

  struct File {
    std::string name;
    Index bytes = 0;
  };

  Kind kind = Kind::hdf5;
  std::filesystem::path path = {};
  std::vector<NamedTensor> tensors = {};                   ///< by name
  std::vector<File> files = {};                            ///< that hold them, by name
  std::shared_ptr<const Checkpoint> checkpoint = nullptr;  ///< when it is one
};

/// "HDF5 file", "checkpoint", "Hugging Face folder", "safetensors file".
std::string_view name(TensorSet::Kind kind);

/// Opens whatever `path` is. Values are read as the files hold them: checksums of a checkpoint are
/// not compared, so that what is wrong with one can be looked at.
/// @throws UserError when it is nothing of these, or damaged beyond the values
TensorSet open_tensors(const std::filesystem::path& path);

/// The weights of a set under the names that Hugging Face gives them: without optimizer states,
/// and without the groups of HDF5 files.
std::vector<NamedTensor> weights_of(const TensorSet& set);

}  // namespace megatrain::io
