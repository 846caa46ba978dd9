#pragma once
/// @file
/// `megatrain convert`: Hugging Face folders to checkpoints and back.

#include "launcher/options/file_options.h"

namespace megatrain::launcher {

void convert(const ConvertOptions& options);

}  // namespace megatrain::launcher
