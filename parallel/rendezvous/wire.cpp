#include "parallel/rendezvous/wire.h"

#include <utility>

namespace megatrain::parallel {

namespace {

constexpr std::size_t kLength = 4;

void put(std::string& bytes, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

std::uint64_t number(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

MessageWriter::MessageWriter(Kind kind) : bytes_(kLength, '\0') {
  bytes_ += static_cast<char>(kind);
  if (kind == Kind::hello) bytes_ += kMagic;
}

MessageWriter& MessageWriter::u32(std::uint32_t value) {
  put(bytes_, value, 4);
  return *this;
}

MessageWriter& MessageWriter::u64(std::uint64_t value) {
  put(bytes_, value, 8);
  return *this;
}

MessageWriter& MessageWriter::text(std::string_view value) {
  put(bytes_, value.size(), 4);
  bytes_ += value;
  return *this;
}

std::string MessageWriter::finish() {
  std::string length;
  put(length, bytes_.size() - kLength, kLength);
  bytes_.replace(0, kLength, length);
  return std::move(bytes_);
}

MessageReader::MessageReader(std::string_view message) : rest_(message) {
  kind_ = static_cast<Kind>(raw(1).front());
}

std::uint32_t MessageReader::u32() { return static_cast<std::uint32_t>(number(raw(4))); }

std::uint64_t MessageReader::u64() { return number(raw(8)); }

std::string MessageReader::text(std::size_t limit) {
  const std::size_t size = u32();
  if (size > limit) throw WireError("a text is too long");
  return std::string(raw(size));
}

std::string_view MessageReader::raw(std::size_t count) {
  if (rest_.size() < count) throw WireError("a message is cut short");
  const std::string_view bytes = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return bytes;
}

void MessageReader::end() const {
  if (!rest_.empty()) throw WireError("a message is longer than it should be");
}

std::optional<std::string> MessageBuffer::next() {
  const std::string_view waiting = std::string_view(bytes_).substr(begin_);
  if (waiting.size() >= kLength) {
    const std::size_t size = number(waiting.substr(0, kLength));
    if (size > limit_) throw WireError("a message is too long");
    if (waiting.size() - kLength >= size) {
      begin_ += kLength + size;
      return std::string(waiting.substr(kLength, size));
    }
  }
  bytes_.erase(0, begin_);
  begin_ = 0;
  return std::nullopt;
}

std::size_t MessageBuffer::lacks() const {
  const std::string_view waiting = std::string_view(bytes_).substr(begin_);
  if (waiting.size() < kLength) return kLength - waiting.size();
  const std::size_t size = number(waiting.substr(0, kLength));
  return size > limit_ || waiting.size() >= kLength + size ? 0 : kLength + size - waiting.size();
}

std::string printable(std::string_view text) {
  std::string clean(text);
  for (char& character : clean)
    if (static_cast<unsigned char>(character) < ' ' || character == '\x7f') character = '?';
  return clean;
}

}  // namespace megatrain::parallel
