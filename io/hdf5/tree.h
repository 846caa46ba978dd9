#pragma once
/// @file
/// The format's trees, old and new, read from left to right.

#include "io/hdf5/source.h"

namespace megatrain::io::hdf5 {

enum class TreeType : std::uint8_t { huge_objects = 1, link_names = 5, attribute_names = 8 };

/// All records of a tree of the second version.
std::vector<Bytes> tree_records(Source& source, std::uint64_t address, TreeType type);
/// Addresses of the leaves of an old group's tree, at most `most`.
std::vector<std::uint64_t> old_group_leaves(Source& source, std::uint64_t address,
                                            std::size_t most);

}  // namespace megatrain::io::hdf5
