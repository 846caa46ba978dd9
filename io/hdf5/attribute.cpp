#include "io/hdf5/attribute.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "io/hdf5/description.h"
#include "io/hdf5/heap.h"
#include "io/hdf5/tree.h"

namespace megatrain::io::hdf5 {

namespace {

using Value = decltype(Hdf5Attribute::value);

/// How strings are padded; both kinds of string type have it.
enum class Padding : std::uint8_t { terminated = 0, nul = 1, space = 2 };

std::string padded_text(const Source& source, std::span<const std::byte> bytes, Padding padding) {
  if (padding != Padding::space) return Cursor(source, bytes).text(bytes.size());
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  text.resize(text.find_last_not_of(' ') + 1);
  return text;
}

std::optional<Value> number_value(FileType type, std::span<const std::byte> bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes.data(), bytes.size());
  switch (type) {
    case FileType::f64:
      return std::bit_cast<double>(bits);
    case FileType::f32:
    case FileType::f16:
    case FileType::bf16: {
      float value = 0;
      to_floats(type, bytes, std::span(&value, 1));
      return static_cast<double>(value);
    }
    case FileType::i8:
      return Index{static_cast<std::int8_t>(bits)};
    case FileType::i16:
      return Index{static_cast<std::int16_t>(bits)};
    case FileType::i32:
      return Index{static_cast<std::int32_t>(bits)};
    default:
      // Unsigned ones of all widths, and 64 bits with a sign.
      if (type == FileType::u64 && bits >> 63 != 0) return std::nullopt;
      return static_cast<Index>(bits);
  }
}

std::optional<Value> variable_text(Source& source, const Datatype& type, Cursor& data) {
  if ((type.bits & 0xf) != kVariableString) return std::nullopt;
  const std::uint64_t length = data.number(4);
  const std::uint64_t address = data.number(8);
  const std::uint64_t index = data.number(4);
  if (length == 0 || address == 0) return Value(std::string());
  const Bytes object = global_heap_object(source, address, index);
  Cursor cursor(source, object);
  return padded_text(source, cursor.take(length), static_cast<Padding>(type.bits >> 4 & 0xf));
}

std::optional<Value> read_value(Source& source, const Datatype& type, Cursor& data) {
  if (type.kind == TypeClass::variable) return variable_text(source, type, data);
  if (type.kind == TypeClass::string)
    return padded_text(source, data.take(type.size), static_cast<Padding>(type.bits & 0xf));
  const StoredType stored = recognise(source, type);
  if (!stored.refusal.empty()) return std::nullopt;
  return number_value(stored.type, data.take(type.size));
}

std::optional<Hdf5Attribute> read_attribute(Source& source, std::span<const std::byte> message) {
  Cursor cursor(source, message);
  const unsigned version = cursor.byte();
  if (version < 1 || version > 3) source.refuse("an attribute in an unknown version");
  const unsigned flags = cursor.byte();
  const std::uint64_t name_bytes = cursor.number(2);
  const std::uint64_t type_bytes = cursor.number(2);
  const std::uint64_t space_bytes = cursor.number(2);
  if (version == 3) cursor.skip(1);  // ASCII or UTF-8
  // The first version fills all parts up.
  const auto part = [&](std::uint64_t bytes) {
    const auto taken = cursor.take(version == 1 ? (bytes + 7) / 8 * 8 : bytes);
    return taken.first(bytes);
  };
  const auto name = part(name_bytes), type_part = part(type_bytes), space_part = part(space_bytes);
  const bool may_share = version > 1;
  const Bytes type_body =
      resolve(source, MessageType::datatype, may_share && (flags & 1) != 0, type_part);
  const Bytes space_body =
      resolve(source, MessageType::dataspace, may_share && (flags & 2) != 0, space_part);
  if (decode_dataspace(source, space_body).kind != Dataspace::Kind::scalar) return std::nullopt;
  std::optional<Value> value = read_value(source, decode_datatype(source, type_body), cursor);
  if (!value) return std::nullopt;
  Hdf5Attribute attribute{.name = Cursor(source, name).text(name.size()),
                          .value = std::move(*value)};
  const auto* text = std::get_if<std::string>(&attribute.value);
  source.keep(sizeof(attribute) + attribute.name.size() + (text == nullptr ? 0 : text->size()));
  return attribute;
}

/// Many attributes, or large ones, lie in a heap.
std::vector<Bytes> heap_attributes(Source& source, std::span<const std::byte> info) {
  Cursor cursor(source, info);
  if (cursor.byte() != 0) source.refuse("attributes in an unknown version");
  if ((cursor.byte() & 1) != 0) cursor.skip(2);  // the order of creation goes so far
  const std::uint64_t address = cursor.number(8);
  const std::uint64_t tree = cursor.number(8);
  std::vector<Bytes> found;
  if (address == kUndefined) return found;
  constexpr std::size_t kIdBytes = 8;
  constexpr unsigned kShared = 2;
  FractalHeap heap(source, address);
  for (const Bytes& record : tree_records(source, tree, TreeType::attribute_names)) {
    Cursor fields(source, record);
    const auto id = fields.take(kIdBytes);
    if ((fields.byte() & kShared) != 0) source.refuse("metadata shared in a way that is not read");
    found.push_back(heap.object(id));
  }
  return found;
}

}  // namespace

std::vector<Hdf5Attribute> read_attributes(Source& source, const Messages& messages) {
  std::vector<Hdf5Attribute> attributes;
  const auto add = [&](std::span<const std::byte> body) {
    if (auto attribute = read_attribute(source, body)) attributes.push_back(std::move(*attribute));
  };
  for (const Message& message : messages)
    if (message.type == MessageType::attribute)
      add(resolve(source, MessageType::attribute, message.shared, message.body));
  if (const Message* info = find(messages, MessageType::attribute_info))
    for (const Bytes& body : heap_attributes(source, info->body)) add(body);
  std::sort(attributes.begin(), attributes.end(),
            [](const Hdf5Attribute& a, const Hdf5Attribute& b) { return a.name < b.name; });
  return attributes;
}

}  // namespace megatrain::io::hdf5
