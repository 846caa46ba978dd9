#include "io/hdf5/attribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>

#include "core/base/bfloat16.h"
#include "io/hdf5/type.h"

namespace megatrain::io::hdf5 {

namespace {

using Value = decltype(Hdf5Attribute::value);

herr_t add_name(hid_t, const char* name, const H5A_info_t*, void* names) {
  try {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
  } catch (...) {  // no memory; nothing may be thrown through the library
    return -1;
  }
}

/// As stored: padded to its length, or behind a pointer of the library's.
std::optional<std::string> read_text(const Session& session, hid_t attribute, hid_t type,
                                     hid_t space, Budget& budget) {
  const char* doing = "read an attribute of";
  if (session.check(H5Tis_variable_str(type), doing) > 0) {
    char* text = nullptr;
    session.check(H5Aread(attribute, type, static_cast<void*>(&text)), doing);
    std::string copy;
    if (text != nullptr) {
      const std::size_t size = std::strlen(text);
      budget.charge(size);
      copy.assign(text, size);
    }
    session.check(H5Dvlen_reclaim(type, space, H5P_DEFAULT, static_cast<void*>(&text)), doing);
    return copy;
  }
  const std::size_t size = H5Tget_size(type);
  budget.charge(size);
  std::string text(size, '\0');
  session.check(H5Aread(attribute, type, text.data()), doing);
  if (H5Tget_strpad(type) == H5T_STR_SPACEPAD)
    text.resize(text.find_last_not_of(' ') + 1);
  else
    text.resize(std::min(text.size(), text.find('\0')));
  return text;
}

/// Reads as stored, without conversion, then takes the bits apart.
std::optional<Value> read_number(const Session& session, hid_t attribute, hid_t type) {
  const StoredType stored = recognise(session, type);
  if (!stored.refusal.empty()) return std::nullopt;
  std::uint64_t bits = 0;
  session.check(H5Aread(attribute, type, &bits), "read an attribute of");
  switch (stored.type) {
    case FileType::f64:
      return std::bit_cast<double>(bits);
    case FileType::f32:
    case FileType::f16:
    case FileType::bf16: {
      float value = 0;
      to_floats(stored.type,
                std::as_bytes(std::span(&bits, 1))
                    .first(static_cast<std::size_t>(bits_of(stored.type) / 8)),
                std::span(&value, 1));
      return static_cast<double>(value);
    }
    case FileType::i8:
      return Index{static_cast<std::int8_t>(bits)};
    case FileType::i16:
      return Index{static_cast<std::int16_t>(bits)};
    case FileType::i32:
      return Index{static_cast<std::int32_t>(bits)};
    default:
      // Unsigned ones of all widths, and 64 bits with a sign.
      if (stored.type == FileType::u64 && bits >> 63 != 0) return std::nullopt;
      return static_cast<Index>(bits);
  }
}

std::optional<Value> read_value(const Session& session, hid_t object, const std::string& name,
                                Budget& budget) {
  const char* doing = "read an attribute of";
  const Handle attribute = session.own(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, doing);
  const Handle space = session.own(H5Aget_space(attribute.get()), H5Sclose, doing);
  if (H5Sget_simple_extent_type(space.get()) != H5S_SCALAR) return std::nullopt;
  const Handle type = session.own(H5Aget_type(attribute.get()), H5Tclose, doing);
  if (H5Tget_class(type.get()) == H5T_STRING)
    return read_text(session, attribute.get(), type.get(), space.get(), budget);
  return read_number(session, attribute.get(), type.get());
}

}  // namespace

void Budget::charge(std::uint64_t bytes) {
  if (bytes > left_)
    session_.refuse(fmt::format("its names, attributes and compact values take more than {}",
                                format_bytes(kMaxHdf5Metadata)));
  left_ -= bytes;
}

std::vector<Hdf5Attribute> read_attributes(const Session& session, hid_t object, Budget& budget) {
  std::vector<std::string> names;
  session.check(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, add_name, &names),
                "list the attributes of");
  std::vector<Hdf5Attribute> attributes;
  for (std::string& name : names) {
    budget.charge(sizeof(Hdf5Attribute) + name.size());
    if (std::optional<Value> value = read_value(session, object, name, budget))
      attributes.push_back({std::move(name), std::move(*value)});
  }
  std::sort(attributes.begin(), attributes.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return attributes;
}

void write_attribute(const Session& session, hid_t object, const Hdf5Attribute& attribute) {
  const std::string doing = fmt::format("write the attribute {} to", attribute.name);
  Handle type;
  const void* data = nullptr;
  std::string text;
  if (const auto* value = std::get_if<std::string>(&attribute.value)) {
    require(value->find('\0') == std::string::npos, "an HDF5 attribute with NUL in it");
    text = *value;
    if (text.empty()) text.push_back('\0');  // a length of 0 does not exist
    data = text.data();
    type = session.own(H5Tcopy(H5T_C_S1), H5Tclose, doing);
    session.check(H5Tset_size(type.get(), text.size()), doing);
    session.check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), doing);
    session.check(H5Tset_cset(type.get(), H5T_CSET_UTF8), doing);
  } else if (const auto* integer = std::get_if<Index>(&attribute.value)) {
    data = integer;
    type = session.own(H5Tcopy(H5T_STD_I64LE), H5Tclose, doing);
  } else {
    data = &std::get<double>(attribute.value);
    type = session.own(H5Tcopy(H5T_IEEE_F64LE), H5Tclose, doing);
  }
  const Handle space = session.own(H5Screate(H5S_SCALAR), H5Sclose, doing);
  const Handle options = session.own(H5Pcreate(H5P_ATTRIBUTE_CREATE), H5Pclose, doing);
  session.check(H5Pset_char_encoding(options.get(), H5T_CSET_UTF8), doing);
  const Handle made = session.own(H5Acreate2(object, attribute.name.c_str(), type.get(),
                                             space.get(), options.get(), H5P_DEFAULT),
                                  H5Aclose, doing);
  session.check(H5Awrite(made.get(), type.get(), data), doing);
}

}  // namespace megatrain::io::hdf5
