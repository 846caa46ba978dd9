#include "io/hdf5/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "io/hdf5/hdf5_file.h"
#include "io/text.h"

namespace megatrain::io::hdf5 {

namespace {

constexpr std::uint64_t kWindow = 1 << 16;         ///< read at once: neighbours are wanted next
constexpr std::uint64_t kMaxPiece = 1 << 26;       ///< far above any structure of the format
constexpr std::uint64_t kMaxFetched = 1ULL << 31;  ///< in all; a million objects take a third
constexpr std::uint64_t kFetchCost = 64;           ///< of a piece, besides its bytes

}  // namespace

void Source::refuse(std::string_view what) const {
  throw UserError(object_.empty() ? fmt::format("{}: {}", quote(file_.path().string()), what)
                                  : fmt::format("{}: {}: {}", quote(file_.path().string()),
                                                quote(object_), what));
}

void Source::fill_window(std::uint64_t address) {
  window_begin_ = address / kWindow * kWindow;
  const auto end = static_cast<std::uint64_t>(file_.bytes());
  window_.resize(std::min(kWindow, end - window_begin_));
  file_.read(static_cast<Index>(window_begin_), window_);
}

Bytes Source::fetch(std::uint64_t address, std::uint64_t bytes) {
  const auto end = static_cast<std::uint64_t>(file_.bytes());
  if (address > end || bytes > end - address)
    refuse(fmt::format("{} bytes of metadata at byte {} lie outside the file", bytes, address));
  fetched_ += bytes + kFetchCost;
  if (bytes > kMaxPiece || fetched_ > kMaxFetched) refuse("too much metadata");
  Bytes out(bytes);
  if (bytes > kWindow / 2) {
    file_.read(static_cast<Index>(address), out);
    return out;
  }
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t at = address + done;
    if (window_.empty() || at < window_begin_ || at >= window_begin_ + window_.size())
      fill_window(at);
    const std::uint64_t inside = at - window_begin_;
    const std::uint64_t part = std::min<std::uint64_t>(bytes - done, window_.size() - inside);
    std::memcpy(out.data() + done, window_.data() + inside, part);
    done += part;
  }
  return out;
}

Bytes Source::fetch_checked(std::uint64_t address, std::uint64_t bytes,
                            std::string_view signature) {
  Bytes fetched = fetch(address, bytes);
  if (!has_signature(fetched, signature))
    refuse(fmt::format("no {} at byte {}", signature, address));
  Cursor cursor(*this, fetched);
  const auto body = cursor.take(bytes - sizeof(std::uint32_t));
  require_checksum(*this, body, cursor.number(sizeof(std::uint32_t)));
  return fetched;
}

void Source::keep(std::uint64_t bytes) {
  kept_ += bytes;
  if (bytes > kMaxHdf5Metadata || kept_ > kMaxHdf5Metadata)
    refuse(fmt::format("names, attributes and compact values of the file take more than {}",
                       format_bytes(kMaxHdf5Metadata)));
}

std::span<const std::byte> Cursor::take(std::uint64_t bytes) {
  if (bytes > left_.size()) source_.refuse("metadata that end too early");
  const auto taken = left_.first(bytes);
  left_ = left_.subspan(bytes);
  return taken;
}

std::uint64_t Cursor::number(std::size_t bytes) {
  const auto taken = take(bytes);
  std::uint64_t value = 0;
  require(bytes <= sizeof(value), "Cursor::number: at most 8 bytes");
  std::memcpy(&value, taken.data(), bytes);
  return value;
}

std::string Cursor::text(std::uint64_t bytes) {
  const auto taken = take(bytes);
  const auto end = std::find(taken.begin(), taken.end(), std::byte{0});
  return {reinterpret_cast<const char*>(taken.data()),
          static_cast<std::size_t>(end - taken.begin())};
}

bool has_signature(std::span<const std::byte> bytes, std::string_view signature) {
  return bytes.size() >= signature.size() &&
         std::memcmp(bytes.data(), signature.data(), signature.size()) == 0;
}

std::uint32_t checksum(std::span<const std::byte> bytes) {
  std::uint32_t a = 0xdeadbeefU + static_cast<std::uint32_t>(bytes.size());
  std::uint32_t b = a, c = a;
  const auto add = [&](std::span<const std::byte> part) {
    std::uint32_t words[3] = {};
    std::memcpy(words, part.data(), part.size());
    a += words[0];
    b += words[1];
    c += words[2];
  };
  constexpr std::size_t kStep = 12;
  for (; bytes.size() > kStep; bytes = bytes.subspan(kStep)) {
    add(bytes.first(kStep));
    a = (a - c) ^ std::rotl(c, 4), c += b;
    b = (b - a) ^ std::rotl(a, 6), a += c;
    c = (c - b) ^ std::rotl(b, 8), b += a;
    a = (a - c) ^ std::rotl(c, 16), c += b;
    b = (b - a) ^ std::rotl(a, 19), a += c;
    c = (c - b) ^ std::rotl(b, 4), b += a;
  }
  if (bytes.empty()) return c;
  add(bytes);
  c = (c ^ b) - std::rotl(b, 14);
  a = (a ^ c) - std::rotl(c, 11);
  b = (b ^ a) - std::rotl(a, 25);
  c = (c ^ b) - std::rotl(b, 16);
  a = (a ^ c) - std::rotl(c, 4);
  b = (b ^ a) - std::rotl(a, 14);
  return (c ^ b) - std::rotl(b, 24);
}

void require_checksum(const Source& source, std::span<const std::byte> bytes,
                      std::uint64_t stored) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  // No fuzzer guesses a checksum, and what lies behind it must be safe without.
  (void)source, (void)bytes, (void)stored;
#else
  if (checksum(bytes) != stored) source.refuse("the metadata are damaged: their checksum differs");
#endif
}

}  // namespace megatrain::io::hdf5
