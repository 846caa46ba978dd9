// Uses the installed headers and libraries.
#include <cstdio>

#include "core/base/types.h"
#include "core/engine/solo_communicator.h"
#include "core/model/config.h"
#include "parallel/gloo/gloo_transport.h"

int main() {
  const megatrain::ModelConfig config = megatrain::preset("llama-tiny");
  const auto alone = megatrain::make_solo_communicator("data");
  std::printf("%s, %s, Gloo %s\n", config.model_type.c_str(),
              megatrain::format_bytes(1 << 20).c_str(), megatrain::has_gloo() ? "yes" : "no");
  return config.layers > 0 && megatrain::parse_bytes("1MiB") == 1 << 20 && alone->size() == 1 ? 0
                                                                                              : 1;
}
