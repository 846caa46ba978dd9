#pragma once
/// @file
/// Token sequences of any length, read by position: in memory (text), or in files of tokens.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.h"

namespace megatrain::io {

/// A sequence of token ids. Reads may come from several threads.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  [[nodiscard]] virtual Index tokens() const = 0;
  /// Fills `out` with the tokens from `first` on. @throws UserError for an id that is not in
  /// [0, vocabulary), naming file, position and id
  virtual void read(Index first, std::span<std::int32_t> out) const = 0;
};

/// A file of tokens: llm.c's .bin (16-bit version 1 or 32-bit version 7, by magic number), or
/// headerless 16-bit ids, as nanoGPT writes them. Ids are checked when they are read, and up to
/// 1 GiB of the file right here.
/// @throws UserError for other .bin files that are known (llm.c's models and evaluation sets,
/// Megatron's, which have an .idx beside them), a size that does not fit, ids beyond the vocabulary
std::unique_ptr<TokenStream> open_token_file(const std::filesystem::path& path, Index vocabulary);

/// Text files (.txt) and JSON lines (.jsonl, a "text" string in each), each document as bytes with
/// the end token behind it, all in one sequence, in memory at 2 bytes a token.
/// @param warnings  takes a line for each .txt file that is not UTF-8, with the place
/// @throws UserError naming file and line; for a file that begins as no text does (compressed, or
/// with zero bytes)
std::unique_ptr<TokenStream> read_text_files(std::span<const std::filesystem::path> paths,
                                             std::vector<std::string>& warnings);

}  // namespace megatrain::io
