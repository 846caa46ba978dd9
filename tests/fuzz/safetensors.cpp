// A safetensors file: what the checks let through must lie inside the file, gapless, with sizes
// that fit the shapes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/base/error.h"
#include "io/safetensors.h"

namespace {

using namespace megatrain;

void check(const io::SafetensorsHeader& header, Index data_begin, Index file_bytes) {
  Index next = data_begin;
  for (const io::TensorInfo& tensor : header.tensors) {
    if (tensor.begin != next || tensor.end < tensor.begin || tensor.end > file_bytes) std::abort();
    if (tensor.elements() < 0) std::abort();
    next = tensor.end;
  }
  if (next != file_bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto file_bytes = static_cast<Index>(size);
  constexpr std::size_t kPrefix = 8;
  try {
    const Index length =
        io::safetensors_header_length(file.first(std::min(size, kPrefix)), file_bytes, "input");
    const io::SafetensorsHeader header = io::parse_safetensors_header(
        file.subspan(kPrefix, static_cast<std::size_t>(length)), file_bytes, "input");
    check(header, static_cast<Index>(kPrefix) + length, file_bytes);
  } catch (const UserError&) {
  }
  return 0;
}
