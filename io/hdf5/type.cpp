#include "io/hdf5/type.h"

#include <fmt/format.h>

#include <array>
#include <optional>

namespace megatrain::io::hdf5 {

namespace {

/// Layout of a little-endian float that fills its bytes: sign above exponent above mantissa.
struct FloatLayout {
  FileType type;
  std::size_t exponent_bits, mantissa_bits, bias;
  [[nodiscard]] std::size_t bits() const { return 1 + exponent_bits + mantissa_bits; }
};

constexpr std::array<FloatLayout, 4> kFloats = {{
    {.type = FileType::f64, .exponent_bits = 11, .mantissa_bits = 52, .bias = 1023},
    {.type = FileType::f32, .exponent_bits = 8, .mantissa_bits = 23, .bias = 127},
    {.type = FileType::f16, .exponent_bits = 5, .mantissa_bits = 10, .bias = 15},
    {.type = FileType::bf16, .exponent_bits = 8, .mantissa_bits = 7, .bias = 127},
}};

std::optional<FileType> recognise_float(hid_t type) {
  for (const FloatLayout& layout : kFloats) {
    std::size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
    if (H5Tget_size(type) * 8 == layout.bits() && H5Tget_precision(type) == layout.bits() &&
        H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 &&
        sign == layout.bits() - 1 && exponent == layout.mantissa_bits && mantissa == 0 &&
        exponent_bits == layout.exponent_bits && mantissa_bits == layout.mantissa_bits &&
        H5Tget_ebias(type) == layout.bias && H5Tget_norm(type) == H5T_NORM_IMPLIED)
      return layout.type;
  }
  return std::nullopt;
}

std::optional<FileType> recognise_integer(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  if (H5Tget_precision(type) != size * 8) return std::nullopt;
  const H5T_sign_t sign = H5Tget_sign(type);
  if (sign != H5T_SGN_NONE && sign != H5T_SGN_2) return std::nullopt;
  const bool is_signed = sign == H5T_SGN_2;
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

std::string_view class_name(H5T_class_t type) {
  switch (type) {
    case H5T_TIME:
      return "time";
    case H5T_STRING:
      return "string";
    case H5T_BITFIELD:
      return "bit field";
    case H5T_OPAQUE:
      return "opaque";
    case H5T_COMPOUND:
      return "compound";
    case H5T_REFERENCE:
      return "reference";
    case H5T_ENUM:
      return "enumeration";
    case H5T_VLEN:
      return "variable-length";
    case H5T_ARRAY:
      return "array";
    default:
      return "unknown";
  }
}

Handle copy_of(const Session& session, hid_t type) {
  return session.own(H5Tcopy(type), H5Tclose, "make a type for");
}

Handle float_type(const Session& session, FileType type) {
  for (const FloatLayout& layout : kFloats) {
    if (layout.type != type) continue;
    const std::size_t bits = layout.bits();
    Handle made = copy_of(session, bits > 32 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE);
    // Fields first: they must lie inside the size at any time. The library's own version of a type
    // would have the same bits, but not every version has it.
    session.check(H5Tset_fields(made.get(), bits - 1, layout.mantissa_bits, layout.exponent_bits, 0,
                                layout.mantissa_bits),
                  "make a type for");
    session.check(H5Tset_size(made.get(), bits / 8), "make a type for");
    session.check(H5Tset_ebias(made.get(), layout.bias), "make a type for");
    return made;
  }
  throw LogicError("internal error: not a float of HDF5");
}

}  // namespace

StoredType recognise(const Session& session, hid_t type) {
  const H5T_class_t kind = session.check(H5Tget_class(type), "read a type of");
  if (kind != H5T_FLOAT && kind != H5T_INTEGER)
    return {.refusal = fmt::format("{} type", class_name(kind))};
  const std::size_t size = H5Tget_size(type);
  const H5T_order_t order = H5Tget_order(type);
  if (order == H5T_ORDER_BE && size > 1) return {.refusal = "big-endian"};
  const bool ordered = order == H5T_ORDER_LE || (kind == H5T_INTEGER && size == 1);
  const std::optional<FileType> found = !ordered            ? std::nullopt
                                        : kind == H5T_FLOAT ? recognise_float(type)
                                                            : recognise_integer(type);
  if (!found)
    return {.refusal = fmt::format("unusual {}-byte {}", size,
                                   kind == H5T_FLOAT ? "floating-point type" : "integer type")};
  return {.type = *found};
}

FileType named_type(FileType stored, std::string_view dtype) {
  const std::optional<FileType> named = file_type(dtype);
  const bool bare = stored == FileType::u8 || stored == FileType::u16;
  return named && bare && bits_of(*named) == bits_of(stored) ? *named : stored;
}

Handle stored_type(const Session& session, FileType type, Hdf5Bf16 bf16) {
  switch (type) {
    case FileType::bf16:
      if (bf16 == Hdf5Bf16::uint16) return copy_of(session, H5T_STD_U16LE);
      return float_type(session, type);
    case FileType::f64:
    case FileType::f32:
    case FileType::f16:
      return float_type(session, type);
    case FileType::i8:
      return copy_of(session, H5T_STD_I8LE);
    case FileType::i16:
      return copy_of(session, H5T_STD_I16LE);
    case FileType::i32:
      return copy_of(session, H5T_STD_I32LE);
    case FileType::i64:
      return copy_of(session, H5T_STD_I64LE);
    case FileType::boolean:
    case FileType::u8:
    case FileType::f8_e5m2:
    case FileType::f8_e4m3:
    case FileType::f8_e8m0:
    case FileType::f8_e4m3fnuz:
    case FileType::f8_e5m2fnuz:
      return copy_of(session, H5T_STD_U8LE);
    case FileType::u16:
      return copy_of(session, H5T_STD_U16LE);
    case FileType::u32:
      return copy_of(session, H5T_STD_U32LE);
    case FileType::u64:
      return copy_of(session, H5T_STD_U64LE);
    case FileType::f4:
    case FileType::f6_e2m3:
    case FileType::f6_e3m2:
    case FileType::c64:
      break;
  }
  throw LogicError(fmt::format("internal error: {} has no HDF5 counterpart", name(type)));
}

}  // namespace megatrain::io::hdf5
