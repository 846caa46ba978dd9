#pragma once
/// @file
/// What the commands about files are asked to do.

#include <optional>
#include <string>
#include <vector>

#include "launcher/options/option.h"

namespace megatrain::launcher {

/// `inspect`.
struct InspectOptions {
  std::string path;
  bool stats = false;
  bool json = false;
  Index threads = 0;  ///< 0: one a usable core
};

/// `verify`.
struct VerifyOptions {
  std::string checkpoint;
  bool reseal = false;
  Index threads = 0;
};

/// `convert`.
struct ConvertOptions {
  std::string from, to;
  std::optional<std::string> type;     ///< "fp32", "bf16"
  std::optional<std::string> h5_bf16;  ///< "float", "uint16"
  std::optional<ByteCount> shard_size;
  bool overwrite = false;
  Index threads = 0;
};

/// `diff`.
struct DiffOptions {
  std::string a, b;
  bool all = false;
  bool weights = false;
  Index threads = 0;
};

/// Tables over the fields of `options`, which must outlive them.
std::vector<Option> inspect_table(InspectOptions& options);
std::vector<Option> verify_table(VerifyOptions& options);
std::vector<Option> convert_table(ConvertOptions& options);
std::vector<Option> diff_table(DiffOptions& options);

/// The threads that --threads asks for.
int thread_count(Index threads);

}  // namespace megatrain::launcher
