#include "io/file_type.h"

#include <array>
#include <bit>
#include <cstring>

#include "core/base/bfloat16.h"

namespace megatrain::io {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

namespace {

struct TypeRow {
  std::string_view name;
  Index bits;
};

/// In the order of FileType.
constexpr std::array<TypeRow, 22> kTypes = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};
static_assert(static_cast<std::size_t>(FileType::u64) + 1 == kTypes.size());

/// Exact widening of an IEEE half.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0x1f)  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent == 0) {  // zero, subnormal: mantissa x 2^-24, exact in fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// values[i] = convert(element i), elements of type Raw without alignment.
template <typename Raw, typename Convert>
void widen(const std::byte* bytes, std::span<float> values, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Raw raw;
    std::memcpy(&raw, bytes + i * sizeof(Raw), sizeof(Raw));
    values[i] = convert(raw);
  }
}

}  // namespace

std::string_view name(FileType type) { return kTypes[static_cast<std::size_t>(type)].name; }

std::optional<FileType> file_type(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (kTypes[i].name == name) return static_cast<FileType>(i);
  return std::nullopt;
}

Index bits_of(FileType type) { return kTypes[static_cast<std::size_t>(type)].bits; }

FileType file_type(DType type) { return type == DType::f32 ? FileType::f32 : FileType::bf16; }

bool converts_to_float(FileType type) {
  return type == FileType::f32 || type == FileType::bf16 || type == FileType::f16;
}

void to_floats(FileType type, std::span<const std::byte> bytes, std::span<float> values) {
  require(converts_to_float(type) &&
              bytes.size() == values.size() * static_cast<std::size_t>(bits_of(type) / 8),
          "to_floats: wrong type or size");
  if (type == FileType::f32)
    std::memcpy(values.data(), bytes.data(), bytes.size());
  else if (type == FileType::bf16)
    widen<std::uint16_t>(bytes.data(), values,
                         [](std::uint16_t raw) { return to_float(bfloat16{raw}); });
  else
    widen<std::uint16_t>(bytes.data(), values, half_to_float);
}

void from_floats(DType type, std::span<const float> values, std::span<std::byte> bytes) {
  require(bytes.size() == values.size() * static_cast<std::size_t>(size_of(type)),
          "from_floats: wrong size");
  if (type == DType::f32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bfloat16 rounded = to_bfloat16(values[i]);
    std::memcpy(bytes.data() + i * sizeof(rounded), &rounded, sizeof(rounded));
  }
}

}  // namespace megatrain::io
