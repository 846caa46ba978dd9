// Uses the installed headers and both libraries.
#include <cstdio>

#include "core/base/types.h"
#include "core/model/config.h"

int main() {
  const megatrain::ModelConfig config = megatrain::preset("llama-tiny");
  std::printf("%s, %s\n", config.model_type.c_str(), megatrain::format_bytes(1 << 20).c_str());
  return config.layers > 0 && megatrain::parse_bytes("1MiB") == 1 << 20 ? 0 : 1;
}
