#pragma once
/// @file
/// Single values of every element type, for people: statistics and comparisons.

#include <cstddef>
#include <span>
#include <string>

#include "io/file_type.h"

namespace megatrain::io {

/// Whether elements of the type are real numbers that lie on byte boundaries.
bool converts_to_double(FileType type);
/// Little-endian elements as fp64; exact but for 64-bit integers, which round. `bytes` need no
/// alignment and hold values.size() elements. @throws LogicError when !converts_to_double(type)
void to_doubles(FileType type, std::span<const std::byte> bytes, std::span<double> values);
/// One element as the shortest text that reads back as the same value; integers in full.
std::string value_text(FileType type, std::span<const std::byte> element);

}  // namespace megatrain::io
