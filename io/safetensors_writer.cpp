#include "io/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "io/json_writer.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

Index bytes_of(const TensorSpec& tensor) {
  Index bits = bits_of(tensor.type);
  for (const Index dimension : tensor.shape) bits = checked_mul(bits, dimension);
  require(bits % 8 == 0, "a tensor fills no whole number of bytes");
  return bits / 8;
}

/// Indices of the tensors in file order.
std::vector<std::size_t> file_order(const std::vector<TensorSpec>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Index bits_a = bits_of(tensors[a].type), bits_b = bits_of(tensors[b].type);
    return bits_a != bits_b ? bits_a > bits_b : tensors[a].name < tensors[b].name;
  });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (tensors[order[i - 1]].name == tensors[order[i]].name)
      throw UserError(fmt::format("two tensors are named {}", quote(tensors[order[i]].name)));
  return order;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorSpec> tensors, AtomicFile::Role role)
    : file_(path, role), role_(role), begins_(tensors.size()), ends_(tensors.size()) {
  JsonWriter json;
  json.begin_object();
  json.key("__metadata__").begin_object().member("format", "pt").end_object();
  for (const std::size_t i : file_order(tensors)) {
    const TensorSpec& tensor = tensors[i];
    begins_[i] = data_bytes_;
    data_bytes_ = ends_[i] = checked_add(data_bytes_, bytes_of(tensor));
    json.key(tensor.name).begin_object().member("dtype", name(tensor.type));
    json.key("shape").begin_array();
    for (const Index dimension : tensor.shape) json.value(dimension);
    json.end_array().key("data_offsets").begin_array().value(begins_[i]).value(ends_[i]);
    json.end_array().end_object();
  }
  json.end_object();
  const auto json_bytes = static_cast<Index>(json.text().size());
  const Index data_begin = round_up(8 + json_bytes, kSafetensorsAlignment);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    begins_[i] += data_begin;
    ends_[i] += data_begin;
  }
  if (role_ == AtomicFile::Role::joiner) return;

  file_.reserve(data_begin + data_bytes_);
  const std::int64_t length = data_begin - 8;
  std::string header(sizeof(length), '\0');
  std::memcpy(header.data(), &length, sizeof(length));
  header += json.text();
  header.resize(static_cast<std::size_t>(data_begin), ' ');
  file_.append(header);
}

void SafetensorsWriter::write(std::size_t index, Index first, std::span<const std::byte> data) {
  const auto bytes = static_cast<Index>(data.size());
  require(first >= 0 && begins_[index] + first + bytes <= ends_[index],
          "SafetensorsWriter::write: range outside the tensor");
  file_.write_at(begins_[index] + first, data);
  written_ += bytes;
}

void SafetensorsWriter::finish(Index by_others) {
  require(role_ == AtomicFile::Role::joiner || written_ + by_others == data_bytes_,
          "SafetensorsWriter::finish: not every byte was written");
  file_.commit();
}

}  // namespace megatrain::io
