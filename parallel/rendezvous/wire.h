#pragma once
/// @file
/// Messages of the rendezvous as bytes: a length of 4 bytes, a kind, and fields. Numbers are
/// little-endian. Whoever reads believes nothing: lengths have limits, and a field that is not
/// there is an error.

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace megatrain::parallel {

/// The first message of a client begins with this and the version; they never change place, so that
/// strangers and other versions are told apart. So does the shape of `reject`.
constexpr std::string_view kMagic = "MEGATRDV";
constexpr std::uint32_t kProtocolVersion = 2;

/// Limits, in bytes.
constexpr std::size_t kMaxHello = 4096;
constexpr std::size_t kMaxName = 256;
constexpr std::size_t kMaxValue = 1 << 20;   ///< of a key; of all of a request, with their keys
constexpr std::size_t kMaxExchanged = 4096;  ///< a rank's part of an exchange, or a post
constexpr std::size_t kMaxText = 2048;       ///< reasons, and what a rank is doing

enum class Kind : std::uint8_t {
  // From a client.
  hello = 1,  ///< magic, version, run id, world, configuration, generation, rank, host, process
  set,        ///< request, count, for each key and value
  get,        ///< request, milliseconds, count, keys
  exchange,   ///< request, name, value, milliseconds
  post,       ///< text
  beat,       ///< what it is doing; from the server: empty
  fail,       ///< reason
  leave,      ///<
  late,       ///< milliseconds that it has been at something, and at what
  standing,   ///< how far it has come: the answer to an inquiry
  // From the server.
  welcome = 32,  ///< milliseconds of silence that end a connection
  reject,        ///< reason, whether it may pass
  done,          ///< request
  found,         ///< request, why not all are there, count, for each whether it is, and its value
  values,        ///< request, count, values by rank
  refused,       ///< request, reason
  posted,        ///< rank, text
  trouble,       ///< rank, reason
  inquiry,       ///< a rank is late: where does this one stand?
};

/// Bytes that are no message.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class MessageWriter {
 public:
  explicit MessageWriter(Kind kind);
  MessageWriter& u32(std::uint32_t value);
  MessageWriter& u64(std::uint64_t value);
  MessageWriter& text(std::string_view value);
  /// The bytes to send; the writer is empty afterwards.
  std::string finish();

 private:
  std::string bytes_;
};

class MessageReader {
 public:
  /// @param message  without its length
  /// @throws WireError when it is empty
  explicit MessageReader(std::string_view message);
  [[nodiscard]] Kind kind() const { return kind_; }
  std::uint32_t u32();
  std::uint64_t u64();
  std::string text(std::size_t limit);
  /// Fixed bytes without a length.
  std::string_view raw(std::size_t count);
  /// @throws WireError when something is left
  void end() const;

 private:
  Kind kind_{};
  std::string_view rest_;
};

/// Cuts a stream into messages.
class MessageBuffer {
 public:
  /// @param limit  the longest message that is taken
  explicit MessageBuffer(std::size_t limit) : limit_(limit) {}
  void set_limit(std::size_t limit) { limit_ = limit; }
  void append(std::string_view bytes) { bytes_ += bytes; }
  /// The next whole message without its length. @throws WireError when it says that it is too long
  std::optional<std::string> next();
  /// Bytes that the next message lacks, as far as is known; 0: it is whole, or says that it is too
  /// long.
  [[nodiscard]] std::size_t lacks() const;

 private:
  std::size_t limit_;
  std::string bytes_;
  std::size_t begin_ = 0;  ///< of what is not cut off yet
};

/// Text of another machine for a message to a person: bytes that could disturb a terminal replaced.
std::string printable(std::string_view text);

}  // namespace megatrain::parallel
