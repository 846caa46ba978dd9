#include "io/hdf5/description.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "io/hdf5/float_layout.h"

namespace megatrain::io::hdf5 {

namespace {

std::optional<FileType> integer_of(std::uint64_t size, bool is_signed) {
  switch (size) {
    case 1:
      return is_signed ? FileType::i8 : FileType::u8;
    case 2:
      return is_signed ? FileType::i16 : FileType::u16;
    case 4:
      return is_signed ? FileType::i32 : FileType::u32;
    case 8:
      return is_signed ? FileType::i64 : FileType::u64;
    default:
      return std::nullopt;
  }
}

std::optional<FileType> recognise_integer(const Source& source, const Datatype& type) {
  Cursor cursor(source, type.properties);
  const std::uint64_t first_bit = cursor.number(2);
  const std::uint64_t precision = cursor.number(2);
  const bool is_signed = (type.bits & 8) != 0;
  if (first_bit != 0 || precision != type.size * 8) return std::nullopt;
  return integer_of(type.size, is_signed);
}

std::optional<FileType> recognise_float(const Source& source, const Datatype& type) {
  constexpr unsigned kImplied = 2;  // the mantissa's first bit
  Cursor cursor(source, type.properties);
  const std::uint64_t first_bit = cursor.number(2);
  const std::uint64_t precision = cursor.number(2);
  const unsigned exponent = cursor.byte(), exponent_bits = cursor.byte();
  const unsigned mantissa = cursor.byte(), mantissa_bits = cursor.byte();
  const std::uint64_t bias = cursor.number(4);
  const unsigned sign = type.bits >> 8 & 0xff;
  for (const FloatLayout& layout : kFloats)
    if (type.size * 8 == layout.bits() && precision == layout.bits() && first_bit == 0 &&
        sign == layout.bits() - 1 && exponent == layout.mantissa_bits &&
        exponent_bits == layout.exponent_bits && mantissa == 0 &&
        mantissa_bits == layout.mantissa_bits && bias == layout.bias &&
        (type.bits >> 4 & 3) == kImplied)
      return layout.type;
  return std::nullopt;
}

std::string_view class_name(TypeClass kind) {
  constexpr std::array<std::string_view, 12> kNames = {
      "integer",  "floating-point", "time",        "string",          "bit field", "opaque",
      "compound", "reference",      "enumeration", "variable-length", "array",     "complex"};
  const auto number = static_cast<std::size_t>(kind);
  return number < kNames.size() ? kNames[number] : "unknown";
}

}  // namespace

Datatype decode_datatype(const Source& source, std::span<const std::byte> message) {
  Cursor cursor(source, message);
  Datatype type;
  type.kind =
      static_cast<TypeClass>(cursor.byte() & 0xf);  // above: version; these classes never changed
  type.bits = static_cast<std::uint32_t>(cursor.number(3));
  type.size = cursor.number(4);
  const auto rest = cursor.take(cursor.left());
  type.properties.assign(rest.begin(), rest.end());
  return type;
}

StoredType recognise(const Source& source, const Datatype& type) {
  if (type.kind == TypeClass::variable && (type.bits & 0xf) == kVariableString)
    return {.refusal = "string type"};
  if (type.kind != TypeClass::integer && type.kind != TypeClass::floating)
    return {.refusal = fmt::format("{} type", class_name(type.kind))};
  const bool integer = type.kind == TypeClass::integer;
  // Two bits of order in floats: the second one is VAX's.
  const unsigned order = type.bits & (integer ? 1 : 0x41);
  if (order == 1 && type.size > 1) return {.refusal = "big-endian"};
  std::optional<FileType> found;
  if (order <= 1) found = integer ? recognise_integer(source, type) : recognise_float(source, type);
  if (!found)
    return {.refusal = fmt::format("unusual {}-byte {} type", type.size, class_name(type.kind))};
  return {.type = *found};
}

FileType named_type(FileType stored, std::string_view dtype) {
  const std::optional<FileType> named = file_type(dtype);
  const bool bare = stored == FileType::u8 || stored == FileType::u16;
  return named && bare && bits_of(*named) == bits_of(stored) ? *named : stored;
}

Dataspace decode_dataspace(const Source& source, std::span<const std::byte> message) {
  Cursor cursor(source, message);
  const unsigned version = cursor.byte();
  const unsigned rank = cursor.byte();
  cursor.skip(1);  // whether largest sizes follow the sizes
  Dataspace space;
  if (version == 1) {
    cursor.skip(5);
    space.kind = rank == 0 ? Dataspace::Kind::scalar : Dataspace::Kind::simple;
  } else if (version == 2) {
    const unsigned kind = cursor.byte();
    if (kind > 2) source.refuse("a shape of an unknown kind");
    space.kind = static_cast<Dataspace::Kind>(kind);
  } else {
    source.refuse("a shape in an unknown version");
  }
  if (space.kind != Dataspace::Kind::simple) return space;
  for (unsigned i = 0; i < rank; ++i) space.sizes.push_back(cursor.number(8));
  return space;
}

Layout decode_layout(const Source& source, std::span<const std::byte> message) {
  Cursor cursor(source, message);
  const unsigned version = cursor.byte();
  if (version < 3) return {.kind = Layout::Kind::old};
  const unsigned kind = cursor.byte();
  // Versions 4 and 5 changed what follows for chunks only.
  if (version > 5 || kind > 3) return {.kind = Layout::Kind::unknown};
  Layout layout{.kind = static_cast<Layout::Kind>(kind)};
  if (layout.kind == Layout::Kind::compact) {
    layout.bytes = cursor.number(2);
    const auto values = cursor.take(layout.bytes);
    layout.compact.assign(values.begin(), values.end());
  } else if (layout.kind == Layout::Kind::contiguous) {
    layout.address = cursor.number(8);
    layout.bytes = cursor.number(8);
  }
  return layout;
}

}  // namespace megatrain::io::hdf5
