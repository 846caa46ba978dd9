#pragma once
/// @file
/// Element types that safetensors files may hold, and conversion of those that models use.

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "core/base/types.h"

namespace megatrain::io {

enum class FileType : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

/// As the format spells it: "BF16".
std::string_view name(FileType type);
/// nullopt for a name that the format does not know.
std::optional<FileType> file_type(std::string_view name);
/// Bits of one element: 4 to 64.
Index bits_of(FileType type);
/// BF16 or F32.
FileType file_type(DType type);

/// Whether weights can be read from it: F32, BF16, F16.
bool converts_to_float(FileType type);
/// Exact widening of little-endian elements; `bytes` need no alignment and hold values.size()
/// elements of `type`. @throws LogicError when !converts_to_float(type)
void to_floats(FileType type, std::span<const std::byte> bytes, std::span<float> values);
/// Rounds to nearest, ties to even (BF16), or copies (F32).
void from_floats(DType type, std::span<const float> values, std::span<std::byte> bytes);

}  // namespace megatrain::io
