#pragma once
/// @file
/// config.json of a Hugging Face folder, in the spellings of transformers 4 and 5. Everything that
/// would change the model and is not implemented is refused by name.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/config.h"

namespace megatrain::io {

/// The file that a model folder and a checkpoint describe their model in.
inline constexpr std::string_view kConfigName = "config.json";

struct HfConfig {
  ModelConfig model;
  /// What a person should know: dropout trained as 0, keys that nobody here reads.
  std::vector<std::string> notes;
};

/// model_type values that are read.
std::vector<std::string> hf_model_types();

/// @param text    the file's content
/// @param source  the file, for messages
/// @throws UserError naming the file, the key and its value
HfConfig parse_hf_config(std::string_view text, std::string_view source);

/// Special tokens that a config names; nullopt writes null.
struct SpecialTokens {
  std::optional<Index> begin, end;
};

/// A config.json that AutoModelForCausalLM opens (transformers 4 and 5) and parse_hf_config reads
/// back as `config`. @throws UserError when the model type has no words for the configuration
std::string make_hf_config(const ModelConfig& config, DType type, const SpecialTokens& tokens);

/// The generation_config.json beside it.
std::string make_generation_config(const SpecialTokens& tokens);

/// A config.json for weights written anew as `type`: dtype and torch_dtype rewritten where they
/// are, every other key kept. @throws UserError
std::string rewrite_hf_config(std::string_view text, std::string_view source, DType type);

}  // namespace megatrain::io
