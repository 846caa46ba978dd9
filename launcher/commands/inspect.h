#pragma once
/// @file
/// `megatrain inspect`: what is in a file of tensors.

#include "launcher/options/file_options.h"

namespace megatrain::launcher {

void inspect(const InspectOptions& options);

}  // namespace megatrain::launcher
