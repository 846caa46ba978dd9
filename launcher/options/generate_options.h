#pragma once
/// @file
/// What `generate` is asked to do, and the table that fills it.

#include <optional>
#include <string>
#include <vector>

#include "launcher/options/run_options.h"

namespace megatrain::launcher {

struct GenerateOptions {
  std::string model;
  std::string prompt;
  Index tokens = 256;
  double temperature = 0.8;
  Index top_k = 0;
  double top_p = 1;
  std::uint64_t seed = 0;
  std::optional<Index> context;  ///< tokens
  MachineOptions machine;
};

/// Over the fields of `options`, which must outlive it.
std::vector<Option> generate_table(GenerateOptions& options);

}  // namespace megatrain::launcher
