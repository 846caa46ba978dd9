#pragma once
/// @file
/// Makes HDF5 files whose values others write: the library writes the metadata and tells where each
/// dataset lies.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/direct_file.h"
#include "io/hdf5/hdf5_file.h"

namespace megatrain::io {

/// How BF16 values are described to HDF5.
enum class Hdf5Bf16 : std::uint8_t {
  floating,  ///< a 16-bit float type with the layout of HDF5 2.0's H5T_FLOAT_BFLOAT16LE
  uint16,    ///< the bit patterns, for tools that know no other 16-bit float
};

struct Hdf5DatasetSpec {
  std::string path;  ///< absolute; missing groups are made
  FileType type = FileType::f32;
  std::vector<Index> shape;
  std::vector<Hdf5Attribute> attributes = {};  ///< "dtype" is added
};

/// Where the values of a new file belong.
struct Hdf5Layout {
  std::vector<Index> offsets;  ///< per spec; multiples of kDirectAlignment; 0 without values
  Index bytes = 0;             ///< of the whole file
};

/// Creates (or replaces) a file with a contiguous, little-endian, unfiltered dataset for each spec,
/// allocated now and never filled: its bytes are holes until they are written at their offset. The
/// metadata depend on the arguments alone: no times, no version of the library. The file appears
/// whole and synced or not at all. Takes as much memory as there is metadata, about 1 KiB a dataset
/// and 4 where one is smaller than a page. Types that HDF5 does not have are stored as unsigned
/// integers of their width under their "dtype".
/// @throws UserError when it cannot be written, LogicError for equal paths, names of attributes or
///         types of no whole number of bytes
Hdf5Layout create_hdf5(const std::filesystem::path& path, std::span<const Hdf5DatasetSpec> datasets,
                       std::span<const Hdf5Attribute> attributes,
                       Hdf5Bf16 bf16 = Hdf5Bf16::floating);

/// A dataset of another file of the same folder.
struct Hdf5Link {
  std::string path;  ///< in both files
  std::string file;  ///< plain name, relative to the folder of the view
};

/// Creates (or replaces) a file of external links: many files as one, for people and tools. Never
/// read by this project.
void create_hdf5_view(const std::filesystem::path& path, std::span<const Hdf5Link> links,
                      std::span<const Hdf5Attribute> attributes);

}  // namespace megatrain::io
