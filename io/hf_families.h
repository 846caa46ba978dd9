#pragma once
/// @file
/// The model types that are read and written, and the one table of configuration switches.

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "io/hf_fields.h"

namespace megatrain::io {

enum class Family : std::uint8_t { llama, mistral, qwen2, qwen3, gpt2 };

/// Class names and class defaults of transformers for one model type.
struct FamilyInfo {
  Family family;
  std::string_view model_type;
  std::string_view architecture;
  std::string_view base_architecture;
  Index max_positions;            ///< when config.json is silent
  std::optional<Index> kv_heads;  ///< when silent; nullopt: as many as heads
  std::optional<Index> head_dim;  ///< when silent; nullopt: hidden / heads
  bool tied_embeddings;           ///< when silent
};

inline constexpr std::array<FamilyInfo, 5> kFamilies = {{
    {Family::llama, "llama", "LlamaForCausalLM", "LlamaModel", 2048, std::nullopt, std::nullopt,
     false},
    {Family::mistral, "mistral", "MistralForCausalLM", "MistralModel", 131072, 8, std::nullopt,
     false},
    {Family::qwen2, "qwen2", "Qwen2ForCausalLM", "Qwen2Model", 32768, 32, std::nullopt, false},
    {Family::qwen3, "qwen3", "Qwen3ForCausalLM", "Qwen3Model", 32768, 32, 128, false},
    {Family::gpt2, "gpt2", "GPT2LMHeadModel", "GPT2Model", 1024, std::nullopt, std::nullopt, true},
}};

/// nullptr for a model type that is not read.
const FamilyInfo* find_family(std::string_view model_type);

/// Refuses every switch that is set to something not implemented. @throws UserError
void refuse_unknown_switches(const Fields& config, const FamilyInfo& family);

/// Notes on dropout (trained as 0) and on keys that no table here knows.
std::vector<std::string> configuration_notes(const Fields& config, const FamilyInfo& family);

}  // namespace megatrain::io
