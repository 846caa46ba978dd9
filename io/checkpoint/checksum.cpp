#include "io/checkpoint/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace megatrain::io {

Checksum checksum(std::span<const std::byte> data) { return XXH3_64bits(data.data(), data.size()); }

std::string to_text(Checksum value) { return fmt::format("{:016x}", value); }

std::optional<Checksum> parse_checksum(std::string_view text) {
  if (text.size() != 16) return std::nullopt;
  Checksum value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return std::nullopt;
    value = value * 16 + static_cast<Checksum>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

struct ChecksumStream::State {
  XXH3_state_t* xxh3 = XXH3_createState();
  State() {
    if (xxh3 == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh3);
  }
  ~State() { XXH3_freeState(xxh3); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) {}
ChecksumStream::~ChecksumStream() = default;

void ChecksumStream::add(std::span<const std::byte> data) {
  XXH3_64bits_update(state_->xxh3, data.data(), data.size());
}

Checksum ChecksumStream::value() const { return XXH3_64bits_digest(state_->xxh3); }

}  // namespace megatrain::io
