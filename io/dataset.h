#pragma once
/// @file
/// Training data from files: which files, what is held out, and samples by index.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/train/token_source.h"

namespace megatrain::io {

struct DatasetOptions {
  std::vector<std::filesystem::path> train = {};  ///< .txt, .jsonl, .bin
  bool train_required =
      true;  ///< false: without train files, what is given is checked all the same
  std::vector<std::filesystem::path> validation = {};  ///< excludes validation_fraction
  double validation_fraction = 0;  ///< of the samples, [0, 1): the last ones are held out
  Index sequence = 0;
  Index vocabulary = 0;
  /// Why text is not possible with this model (refuse_bytes); nullopt: it is.
  std::optional<std::string> text_refusal = {};
};

struct Dataset {
  std::unique_ptr<TokenSource> train;       ///< null without train files
  std::unique_ptr<TokenSource> validation;  ///< null without held-out data
  Index train_tokens = 0;                   ///< samples x sequence
  Index validation_tokens = 0;
  std::vector<std::string> warnings;  ///< of text that is not what it should be, for a person
};

/// A sample is sequence + 1 tokens, and samples begin `sequence` apart: every token is predicted
/// once. Text files follow one another in one sequence of tokens; each .bin file is one of its own,
/// and no sample crosses into the next.
/// @throws UserError for missing, empty or too short data, unknown kinds of file, ids beyond the
/// vocabulary, naming the file
Dataset open_dataset(const DatasetOptions& options);

}  // namespace megatrain::io
