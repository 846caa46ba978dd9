#pragma once
/// @file
/// The safetensors files of a Hugging Face folder, and which of their tensors are a model's.

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/model.h"
#include "io/safetensors.h"

namespace megatrain::io {

/// A tensor and the file that holds it.
struct WeightTensor {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* tensor = nullptr;
};

/// All weight files of a folder (single or sharded) as one map of names.
class WeightFiles {
 public:
  /// @throws UserError when there are none, or one that is missing, damaged or at odds with the
  /// index
  explicit WeightFiles(std::filesystem::path folder);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const std::map<std::string, WeightTensor>& tensors() const { return tensors_; }
  /// Of the files, sorted.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  void open(const std::string& name);
  void open_shards();

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, WeightTensor> tensors_;
};

/// Where a parameter comes from.
struct WeightSource {
  Index unit = 0;
  const ParamDesc* param = nullptr;  ///< of the model that was matched
  WeightTensor from;
  std::vector<WeightTensor> copies;  ///< other names of it in the files; must hold the same values
};

/// Finds every parameter of the model, unit by unit, checking names, shapes and types; nothing is
/// read. Buffers that are no weights are skipped.
/// @throws UserError naming file, tensor, expected and actual
std::vector<WeightSource> match_weights(const WeightFiles& files, const Model& model);

/// Compares elements [first, first + values.size()) of a parameter with its copies.
/// @throws UserError when one differs
void check_copies(const WeightSource& source, Index first, std::span<const float> values);

}  // namespace megatrain::io
