#pragma once
/// @file
/// Writes Hugging Face folders from wherever the weights are.

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "io/file_type.h"
#include "io/hf_folder.h"

namespace megatrain::io {

/// Where exported weights come from.
struct ExportSource {
  /// The elements of a parameter that this process writes.
  std::function<ElementRange(Index unit, const ParamDesc& param)> held;
  /// How many elements of a whole parameter are best read at once.
  std::function<Index(const ParamDesc& param)> piece;
  /// Fills `out` with elements of a parameter from `first` on, in ExportOptions::type; where the
  /// model has one part, they lie between two multiples of piece(param). Threads call it at the
  /// same time.
  std::function<void(Index unit, const ParamDesc& param, Index first, std::span<std::byte> out)>
      read;
};

/// export_model of weights that lie elsewhere. @throws as export_model
void export_weights(const Model& model, const ExportSource& source,
                    const std::vector<SideFile>& side_files, const ExportOptions& options,
                    ThreadPool& pool, const Progress& progress = {});

/// Elements of type `from` as `to`: the same bytes where the types are equal, else rounded to
/// nearest. @param tensor  for messages
/// @throws UserError for a finite value that is infinite in `to`
void convert_weights(FileType from, std::span<const std::byte> bytes, DType to,
                     std::span<std::byte> out, std::string_view tensor);

}  // namespace megatrain::io
