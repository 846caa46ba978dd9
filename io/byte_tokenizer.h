#pragma once
/// @file
/// The byte-level tokenizer: a token is a byte. In a model folder it is an ordinary tokenizer.json
/// (byte-level BPE without merges), which transformers opens too, and a mark of our own in
/// tokenizer_config.json, by which it is known again.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"

namespace megatrain::io {

struct SideFile;

inline constexpr std::int32_t kBeginToken = 256;
inline constexpr std::int32_t kEndToken = 257;
inline constexpr Index kByteVocabulary = 258;

/// One token a byte; neither the begin nor the end token is added.
std::vector<std::int32_t> encode_bytes(std::string_view text);
/// Begin and end tokens vanish; ids that no byte has (an untrained model with a larger vocabulary
/// may draw one) become U+FFFD.
std::string decode_bytes(std::span<const std::int32_t> tokens);

/// tokenizer.json and tokenizer_config.json.
std::vector<SideFile> byte_tokenizer_files();

/// Why text cannot be trained on or sampled with the model of these side files, or nullopt when the
/// byte-level tokenizer is theirs: they carry its mark, or no tokenizer at all and a vocabulary of
/// exactly 258.
std::optional<std::string> refuse_bytes(const std::vector<SideFile>& side_files, Index vocabulary);

}  // namespace megatrain::io
