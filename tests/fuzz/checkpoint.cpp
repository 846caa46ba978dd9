// manifest.json and training.json: whatever is accepted must survive being written and read again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "io/checkpoint/manifest.h"
#include "io/checkpoint/training_record.h"

namespace {

using namespace megatrain;

template <class Parse>
void round_trip(std::string_view text, const Parse& parse) {
  try {
    const auto value = parse(text, "input");
    if (!(parse(io::to_json(value), "written") == value)) std::abort();
  } catch (const UserError&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  round_trip(text, io::parse_manifest);
  round_trip(text, io::parse_training_record);
  return 0;
}
