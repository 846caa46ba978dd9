#include "io/hdf5/object_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace megatrain::io::hdf5 {

namespace {

constexpr std::size_t kMaxBlocks = 4096;          ///< of one header
constexpr std::uint64_t kMaxHeader = 1ULL << 24;  ///< bytes of one header's continuations
constexpr unsigned kShared = 1U << 1;             ///< flag of a message
constexpr unsigned kNeeded = 1U << 7;  ///< flag: who does not know the message must not go on

struct Block {
  std::uint64_t address, bytes;
};

/// Collects the messages of one header.
class Header {
 public:
  explicit Header(Source& source) : source_(source) {}

  Messages read(std::uint64_t address) {
    const Bytes start = source_.fetch(address, 6);
    const bool second = has_signature(start, "OHDR");
    if (second)
      first_block_2(address, std::to_integer<unsigned>(start[5]));
    else
      first_block_1(address);
    for (std::size_t blocks = 0; !continuations_.empty(); ++blocks) {
      const Block block = continuations_.front();
      continuations_.pop_front();
      // A piece may name one that was read before.
      if (blocks == kMaxBlocks || block.bytes > kMaxHeader - bytes_)
        source_.refuse("an object header in too many pieces");
      bytes_ += block.bytes;
      if (second) {
        if (block.bytes < 8) source_.refuse("a piece of an object header that is too short");
        const Bytes piece = source_.fetch_checked(block.address, block.bytes, "OCHK");
        messages_2(std::span(piece).subspan(4, piece.size() - 8));
      } else {
        messages_1(source_.fetch(block.address, block.bytes));
      }
    }
    return std::move(messages_);
  }

 private:
  void first_block_1(std::uint64_t address) {
    constexpr std::uint64_t kPrefix = 16;
    const Bytes prefix = source_.fetch(address, kPrefix);
    Cursor cursor(source_, prefix);
    if (cursor.byte() != 1) source_.refuse(fmt::format("no object at byte {}", address));
    cursor.skip(7);
    messages_1(source_.fetch(address + kPrefix, cursor.number(4)));
  }

  void first_block_2(std::uint64_t address, unsigned flags) {
    ordered_ = (flags & 4) != 0;
    const std::size_t size_bytes = std::size_t{1} << (flags & 3);
    const std::uint64_t prefix = 6 + ((flags & 0x20) != 0 ? 16 : 0) + ((flags & 0x10) != 0 ? 4 : 0);
    const Bytes size_field = source_.fetch(address + prefix, size_bytes);
    const std::uint64_t size = Cursor(source_, size_field).number(size_bytes);
    // Before any sum of it: it may be anything.
    if (size > static_cast<std::uint64_t>(source_.file_bytes()))
      source_.refuse("an object header larger than the file");
    const Bytes block = source_.fetch_checked(address, prefix + size_bytes + size + 4, "OHDR");
    if (std::to_integer<unsigned>(block[4]) != 2)
      source_.refuse("an object header of no known version");
    messages_2(std::span(block).subspan(prefix + size_bytes, size));
  }

  void messages_1(std::span<const std::byte> bytes) {
    constexpr std::size_t kPrefix = 8;
    Cursor cursor(source_, bytes);
    while (cursor.left() >= kPrefix) {
      const auto type = static_cast<MessageType>(cursor.number(2));
      const std::uint64_t size = cursor.number(2);
      const unsigned flags = cursor.byte();
      cursor.skip(3);
      add(type, flags, cursor.take(size));
    }
  }

  void messages_2(std::span<const std::byte> bytes) {
    const std::size_t prefix = ordered_ ? 6 : 4;
    Cursor cursor(source_, bytes);
    while (cursor.left() >= prefix) {  // what is less is a gap
      const auto type = static_cast<MessageType>(cursor.number(1));
      const std::uint64_t size = cursor.number(2);
      const unsigned flags = cursor.byte();
      cursor.skip(prefix - 4);
      add(type, flags, cursor.take(size));
    }
  }

  void add(MessageType type, unsigned flags, std::span<const std::byte> body) {
    switch (type) {
      case MessageType::continuation: {
        Cursor cursor(source_, body);
        const std::uint64_t address = cursor.number(8);
        continuations_.push_back({address, cursor.number(8)});
        return;
      }
      case MessageType::dataspace:
      case MessageType::link_info:
      case MessageType::datatype:
      case MessageType::link:
      case MessageType::external_files:
      case MessageType::layout:
      case MessageType::filters:
      case MessageType::attribute:
      case MessageType::symbol_table:
      case MessageType::attribute_info:
        messages_.push_back({.type = type,
                             .shared = (flags & kShared) != 0,
                             .body = Bytes(body.begin(), body.end())});
        return;
    }
    constexpr auto kNewest = 0x18;  // all up to here are known, and the others need no reading
    if (static_cast<unsigned>(type) > kNewest && (flags & kNeeded) != 0)
      source_.refuse(fmt::format("a message of the unknown type {}", static_cast<unsigned>(type)));
  }

  Source& source_;
  Messages messages_;
  std::deque<Block> continuations_;
  std::uint64_t bytes_ = 0;
  bool ordered_ = false;  ///< messages carry the order of their creation
};

}  // namespace

Messages read_object_header(Source& source, std::uint64_t address) {
  return Header(source).read(address);
}

const Message* find(const Messages& messages, MessageType type) {
  const auto found = std::find_if(messages.begin(), messages.end(),
                                  [&](const Message& message) { return message.type == type; });
  return found == messages.end() ? nullptr : &*found;
}

Bytes resolve(Source& source, MessageType type, bool shared, std::span<const std::byte> body) {
  if (!shared) return {body.begin(), body.end()};
  Cursor cursor(source, body);
  const unsigned version = cursor.byte();
  const unsigned place = cursor.byte();
  constexpr unsigned kInObject = 2;
  if ((version != 2 && version != 3) || (version == 3 && place != kInObject))
    source.refuse("metadata shared in a way that is not read");
  Messages others = read_object_header(source, cursor.number(8));
  for (Message& message : others)
    if (message.type == type && !message.shared) return std::move(message.body);
  source.refuse("refers to metadata that are not there");
}

}  // namespace megatrain::io::hdf5
