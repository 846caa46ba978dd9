#include "io/hdf5/library_type.h"

#include <fmt/format.h>

#include "io/hdf5/float_layout.h"

namespace megatrain::io::hdf5 {

namespace {

Handle copy_of(const Session& session, hid_t type) {
  return session.own(H5Tcopy(type), H5Tclose, "make a type for");
}

Handle float_type(const Session& session, FileType type) {
  for (const FloatLayout& layout : kFloats) {
    if (layout.type != type) continue;
    const unsigned bits = layout.bits();
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
