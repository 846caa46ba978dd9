#pragma once
/// @file
/// `megatrain diff`: where and by how much two files of tensors differ.

#include "launcher/options/file_options.h"

namespace megatrain::launcher {

/// @returns the exit code: 0 when nothing differs, 1 when something does
/// @throws UserError for whatever keeps them from being compared
int diff(const DiffOptions& options);

}  // namespace megatrain::launcher
