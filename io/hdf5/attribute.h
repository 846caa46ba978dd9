#pragma once
/// @file
/// Attributes of files and datasets, as read.

#include "io/hdf5/hdf5_file.h"
#include "io/hdf5/object_header.h"

namespace megatrain::io::hdf5 {

/// Scalar text, integers and floats of an object, by name; others are left out.
std::vector<Hdf5Attribute> read_attributes(Source& source, const Messages& messages);

}  // namespace megatrain::io::hdf5
