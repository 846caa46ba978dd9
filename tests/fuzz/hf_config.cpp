// config.json: whatever is accepted must survive being written and read again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/base/error.h"
#include "io/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace megatrain;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  io::HfConfig config;
  try {
    config = io::parse_hf_config(text, "input");
  } catch (const UserError&) {
    return 0;
  }
  std::string written;
  try {
    written = io::make_hf_config(config.model, DType::f32, {});
  } catch (const UserError&) {
    return 0;  // said to have no words for this configuration
  }
  if (!(io::parse_hf_config(written, "written").model == config.model)) std::abort();
  return 0;
}
