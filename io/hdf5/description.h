#pragma once
/// @file
/// What messages say about values: their type, shape and place.

#include <string>
#include <vector>

#include "io/file_type.h"
#include "io/hdf5/source.h"

namespace megatrain::io::hdf5 {

enum class TypeClass : std::uint8_t { integer = 0, floating = 1, string = 3, variable = 9 };

/// In the lowest four bits of the class `variable`: text, not a sequence of something.
inline constexpr unsigned kVariableString = 1;

struct Datatype {
  TypeClass kind = TypeClass::integer;  ///< others than those named exist
  std::uint64_t size = 0;               ///< bytes of an element
  std::uint32_t bits = 0;               ///< of the class
  Bytes properties = {};
};

Datatype decode_datatype(const Source& source, std::span<const std::byte> message);

/// What a stored type is.
struct StoredType {
  FileType type = FileType::u8;
  std::string refusal = {};  ///< why there is none; empty: there is
};

/// Recognises a type by its exact bit layout; nothing is ever converted.
StoredType recognise(const Source& source, const Datatype& type);
/// `stored`, or what the attribute "dtype" calls it, where unsigned integers of that width stand
/// for a type that HDF5 does not have or a tool did not know.
FileType named_type(FileType stored, std::string_view dtype);

struct Dataspace {
  enum class Kind : std::uint8_t { scalar, simple, none } kind = Kind::scalar;
  std::vector<std::uint64_t> sizes = {};
};

Dataspace decode_dataspace(const Source& source, std::span<const std::byte> message);

struct Layout {
  enum class Kind : std::uint8_t {
    compact = 0,
    contiguous = 1,
    chunked = 2,
    composed = 3,
    old,
    unknown
  };
  Kind kind = Kind::unknown;
  std::uint64_t address = kUndefined;  ///< contiguous
  std::uint64_t bytes = 0;             ///< contiguous, compact
  Bytes compact = {};
};

Layout decode_layout(const Source& source, std::span<const std::byte> message);

}  // namespace megatrain::io::hdf5
