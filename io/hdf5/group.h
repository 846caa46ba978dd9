#pragma once
/// @file
/// The links of a group.

#include "io/hdf5/object_header.h"

namespace megatrain::io::hdf5 {

struct Link {
  enum class Kind : std::uint8_t { hard, soft, external, user } kind = Kind::hard;
  std::string name;
  std::uint64_t address = kUndefined;  ///< of the object header; hard links only
};

/// Whether an object is a group.
bool is_group(const Messages& messages);
/// @throws UserError when there are more than `most`
std::vector<Link> read_links(Source& source, const Messages& messages, std::size_t most);

}  // namespace megatrain::io::hdf5
