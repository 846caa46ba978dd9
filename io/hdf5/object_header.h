#pragma once
/// @file
/// Object headers: the list of messages that describes a group, a dataset or a type.

#include "io/hdf5/source.h"

namespace megatrain::io::hdf5 {

/// The messages that are read.
enum class MessageType : std::uint16_t {
  dataspace = 0x01,
  link_info = 0x02,
  datatype = 0x03,
  link = 0x06,
  external_files = 0x07,
  layout = 0x08,
  filters = 0x0b,
  attribute = 0x0c,
  continuation = 0x10,
  symbol_table = 0x11,
  attribute_info = 0x15,
};

struct Message {
  MessageType type;
  bool shared = false;  ///< the body says where it is
  Bytes body;
};

using Messages = std::vector<Message>;

/// All messages of the header at an address, its continuations included.
Messages read_object_header(Source& source, std::uint64_t address);
/// The first of a type; nullptr: none.
const Message* find(const Messages& messages, MessageType type);
/// The body of a message that may live in another object (a committed type).
Bytes resolve(Source& source, MessageType type, bool shared, std::span<const std::byte> body);

}  // namespace megatrain::io::hdf5
