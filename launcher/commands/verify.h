#pragma once
/// @file
/// `megatrain verify`: whether a checkpoint is whole and can be read on its own.

#include "launcher/options/file_options.h"

namespace megatrain::launcher {

/// @throws UserError naming the file, tensor and place that is not what it should be
void verify(const VerifyOptions& options);

}  // namespace megatrain::launcher
