#pragma once
/// @file
/// Models of thousands of parameters.

#include <string>
#include <string_view>

#include "core/model/config.h"

namespace megatrain::io {

inline ModelConfig small_config(std::string_view model_type, bool tied) {
  ModelConfig config = preset(std::string(model_type) + "-tiny");
  config.vocabulary = 258;
  config.hidden = 24;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = model_type == "gpt2" ? 4 : 2;
  config.head_dim = model_type == "gpt2" ? 6 : 10;
  config.intermediate = 36;
  config.max_positions = 16;
  config.tied_embeddings = tied;
  if (!config.windows.empty()) config.windows.assign(2, 8);
  return config;
}

}  // namespace megatrain::io
