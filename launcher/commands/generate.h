#pragma once
/// @file
/// `megatrain generate`: text from a model folder.

#include "launcher/options/generate_options.h"

namespace megatrain::launcher {

/// Writes the prompt and what follows it to stdout, as it comes.
void generate(const GenerateOptions& options);

}  // namespace megatrain::launcher
