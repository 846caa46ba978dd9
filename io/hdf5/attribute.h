#pragma once
/// @file
/// Attributes of files and datasets.

#include <span>
#include <vector>

#include "io/hdf5/handle.h"
#include "io/hdf5/hdf5_file.h"

namespace megatrain::io::hdf5 {

/// Bytes that may still be copied out of a file's metadata: what objects share on disk would be
/// copied for each of them.
class Budget {
 public:
  explicit Budget(const Session& session) : session_(session) {}
  /// @throws UserError when it is spent
  void charge(std::uint64_t bytes);

 private:
  const Session& session_;
  std::uint64_t left_ = kMaxHdf5Metadata;
};

/// Scalar text, integers and floats, by name; others are left out.
std::vector<Hdf5Attribute> read_attributes(const Session& session, hid_t object, Budget& budget);
/// Strings are written with a fixed length: nothing of them lies outside the object's header or its
/// attribute heap.
void write_attribute(const Session& session, hid_t object, const Hdf5Attribute& attribute);

}  // namespace megatrain::io::hdf5
