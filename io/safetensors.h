#pragma once
/// @file
/// safetensors files: a JSON header that says where each tensor lies, then the bytes. Headers are
/// checked in full before anything is believed; data is read by position, never mapped.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/file.h"
#include "io/file_type.h"

namespace megatrain::io {

/// Longest header that is read, as in the reference implementation.
inline constexpr Index kMaxSafetensorsHeader = 100'000'000;
/// Ours: far above any real model, small enough that a hostile header cannot fill the memory.
inline constexpr Index kMaxSafetensorsTensors = 500'000;
inline constexpr Index kMaxSafetensorsRank = 8;

struct TensorInfo {
  std::string name;
  FileType type = FileType::f32;
  std::vector<Index> shape;
  Index begin = 0, end = 0;  ///< bytes in the file, its header included
  [[nodiscard]] Index elements() const;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  ///< in file order, gapless
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// The length field at a file's start, checked against the cap and the file's size.
/// @param prefix  the file's first 8 bytes (fewer only when the file has fewer)
/// @param source  the file, for messages
/// @throws UserError
Index safetensors_header_length(std::span<const std::byte> prefix, Index file_bytes,
                                std::string_view source);

/// Parses and checks a header without its length field.
/// @param header  exactly safetensors_header_length bytes
/// @throws UserError naming file, tensor, expected and actual
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> header, Index file_bytes,
                                           std::string_view source);

/// An open file. Reads may come from several threads.
class SafetensorsFile {
 public:
  /// @throws UserError when the file is missing or not valid
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }
  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
  /// nullptr when the file has no such tensor.
  [[nodiscard]] const TensorInfo* find(const std::string& name) const;

  /// Bytes [first, first + out.size()) of a tensor.
  void read(const TensorInfo& tensor, Index first, std::span<std::byte> out) const;
  /// Elements [first, first + values.size()) as fp32. @throws UserError when the type is none that
  /// weights come in
  void read_floats(const TensorInfo& tensor, Index first, std::span<float> values) const;

 private:
  InputFile file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

}  // namespace megatrain::io
