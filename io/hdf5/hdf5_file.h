#pragma once
/// @file
/// Reads HDF5 files that may be hostile: with a reader of our own for the part of the format that
/// weights need, because the library has been made to crash, and to open other files, by what files
/// say. Values are read from the file at their offsets: nothing is converted or filtered.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/file.h"
#include "io/file_type.h"

namespace megatrain::io {

/// Limits on what is read: far above any checkpoint, small enough that a hostile file cannot fill
/// the memory.
inline constexpr Index kMaxHdf5Objects = 1'000'000;        ///< links of a file, over all groups
inline constexpr Index kMaxHdf5Depth = 16;                 ///< groups inside groups
inline constexpr Index kMaxHdf5Rank = 8;                   ///< a dataset with more is refused alone
inline constexpr Index kMaxHdf5Metadata = Index{1} << 28;  ///< bytes of names, attributes, values

/// A scalar attribute: text, integer or floating point.
struct Hdf5Attribute {
  std::string name;
  std::variant<std::string, Index, double> value;
  bool operator==(const Hdf5Attribute&) const = default;
};

struct Hdf5Dataset {
  std::string path;  ///< "/params/model.norm.weight"
  /// Of the values: what the attribute "dtype" says where unsigned integers of that width are
  /// stored (BF16 as uint16, F8_E4M3 as uint8), else the stored type; u8 without meaning when
  /// refused.
  FileType type = FileType::f32;
  std::vector<Index> shape;  ///< empty: a scalar, or a refused dataset that does not tell
  Index offset = 0;  ///< of the first byte in the file; contiguous layout only, 0 without values
  Index bytes = 0;   ///< of the values; 0 when refused
  /// Why the values cannot be read ("chunked layout", "big-endian", ...); empty: they can.
  std::string refusal = {};
  std::vector<std::byte> compact = {};         ///< the values, when they lie in the object's header
  std::vector<Hdf5Attribute> attributes = {};  ///< by name; scalars only, others are left out
};

/// The datasets of a file, found through hard links only, depth and number limited. Every readable
/// one lies inside the file: shapes are checked against its size before anything is allocated.
class Hdf5File {
 public:
  /// @throws UserError naming the file, and the object where one is at fault: no HDF5, truncated,
  ///         groups with several names or cyclic or too deep, too many objects, soft or external or
  ///         user-defined links, values outside the file
  explicit Hdf5File(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }
  [[nodiscard]] Index bytes() const { return file_.bytes(); }
  /// Sorted by path.
  [[nodiscard]] const std::vector<Hdf5Dataset>& datasets() const { return datasets_; }
  /// nullptr when there is none.
  [[nodiscard]] const Hdf5Dataset* find(std::string_view path) const;
  /// Of the root group.
  [[nodiscard]] const std::vector<Hdf5Attribute>& attributes() const { return attributes_; }
  /// Bytes [first, first + out.size()) of a dataset's values. Threads may read at the same time.
  /// @throws UserError with the dataset's refusal
  void read(const Hdf5Dataset& dataset, Index first, std::span<std::byte> out) const;

 private:
  InputFile file_;
  std::vector<Hdf5Dataset> datasets_;
  std::vector<Hdf5Attribute> attributes_;
};

}  // namespace megatrain::io
