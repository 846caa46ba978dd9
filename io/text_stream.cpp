#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "io/byte_tokenizer.h"
#include "io/file.h"
#include "io/json.h"
#include "io/text.h"
#include "io/token_stream.h"

namespace megatrain::io {

namespace fs = std::filesystem;

namespace {

constexpr Index kReadBytes = Index{1} << 22;
/// Longest line of a JSON lines file.
constexpr std::size_t kLongestLine = std::size_t{1} << 30;

class MemoryStream : public TokenStream {
 public:
  [[nodiscard]] Index tokens() const override { return static_cast<Index>(tokens_.size()); }

  void read(Index first, std::span<std::int32_t> out) const override {
    require(first >= 0 && first + static_cast<Index>(out.size()) <= tokens(),
            "MemoryStream::read: range outside the text");
    std::copy_n(tokens_.begin() + first, out.size(), out.begin());
  }

  void append(std::string_view text) {
    for (const char c : text) tokens_.push_back(static_cast<unsigned char>(c));
  }
  void end_document() { tokens_.push_back(static_cast<std::uint16_t>(kEndToken)); }
  void reserve(Index tokens) { tokens_.reserve(static_cast<std::size_t>(tokens)); }

 private:
  std::vector<std::uint16_t> tokens_;
};

/// Calls take(piece) for the file's content, piece after piece.
template <typename Take>
void for_each_piece(const InputFile& file, Take take) {
  std::string buffer;
  for (Index offset = 0; offset < file.bytes(); offset += kReadBytes) {
    buffer.resize(static_cast<std::size_t>(std::min(kReadBytes, file.bytes() - offset)));
    file.read(offset, std::as_writable_bytes(std::span(buffer)));
    take(std::string_view(buffer));
  }
}

/// Refuses what is no text by its first bytes: trained on, it would only waste the time.
void refuse_binary(const InputFile& file) {
  using namespace std::string_view_literals;
  struct Mark {
    std::string_view bytes, name, unpack;
  };
  static constexpr Mark kMarks[] = {{"\x1f\x8b"sv, "gzip", "gunzip"},
                                    {"\x28\xb5\x2f\xfd"sv, "zstd", "unzstd"},
                                    {"\xfd\x37zXZ\0"sv, "xz", "unxz"},
                                    {"PK\x03\x04"sv, "zip", "unzip"}};
  constexpr Index kLook = 4096;
  std::string start(static_cast<std::size_t>(std::min(kLook, file.bytes())), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  for (const Mark& mark : kMarks)
    if (start.starts_with(mark.bytes))
      throw UserError(
          fmt::format("{} is compressed ({}), whatever its name says; unpack it first "
                      "({})",
                      quote(file.path().string()), mark.name, mark.unpack));
  if (const auto zero = start.find('\0'); zero != std::string::npos)
    throw UserError(
        fmt::format("{} is no text: byte {} is zero; UTF-16 must be converted to UTF-8 first "
                    "(iconv -f UTF-16 -t UTF-8), files of tokens are named .bin",
                    quote(file.path().string()), zero));
}

/// Finds the first byte that is no UTF-8 in a text that comes in pieces.
class Utf8Search {
 public:
  void take(std::string_view piece) {
    if (found_) return;
    // A character may be cut by the end of a piece: at most three of its bytes wait.
    while (!rest_.empty() && !piece.empty() && !found_) {
      rest_ += piece.front();
      piece.remove_prefix(1);
      settle(/*last=*/false);
    }
    while (!piece.empty() && !found_) {
      const std::size_t plain = ascii_length(piece);
      piece.remove_prefix(plain);
      at_ += static_cast<Index>(plain);
      if (piece.empty()) return;
      const std::size_t length = utf8_length(piece);
      if (length == 0 && piece.size() < kLongest) {
        rest_ = piece;
        return settle(/*last=*/false);
      }
      if (length == 0) found_ = at_;
      piece.remove_prefix(length);
      at_ += static_cast<Index>(length);
    }
  }
  /// Where that byte is; after the last piece.
  [[nodiscard]] std::optional<Index> result() {
    settle(/*last=*/true);
    return found_;
  }

 private:
  static constexpr std::size_t kLongest = 4;

  static std::size_t ascii_length(std::string_view text) {
    std::size_t length = 0;
    for (std::uint64_t word = 0; length + sizeof word <= text.size(); length += sizeof word) {
      std::memcpy(&word, text.data() + length, sizeof word);
      if ((word & 0x8080808080808080U) != 0) break;
    }
    while (length < text.size() && static_cast<unsigned char>(text[length]) < 0x80) ++length;
    return length;
  }

  /// Takes the characters that are whole from what waits; a bad byte shows when no more can help.
  void settle(bool last) {
    while (!rest_.empty() && !found_) {
      const std::size_t length = utf8_length(rest_);
      if (length == 0 && !last && rest_.size() < kLongest) return;
      if (length == 0) found_ = at_;
      rest_.erase(0, length);
      at_ += static_cast<Index>(length);
    }
  }

  std::string rest_;  ///< the beginning of a character, or not
  Index at_ = 0;      ///< where `rest_` begins, or what comes next
  std::optional<Index> found_;
};

void read_document(const InputFile& file, MemoryStream& stream,
                   std::vector<std::string>& warnings) {
  Utf8Search search;
  for_each_piece(file, [&](std::string_view piece) {
    stream.append(piece);
    search.take(piece);
  });
  stream.end_document();
  if (const auto bad = search.result())
    warnings.push_back(
        fmt::format("{} is not UTF-8 from byte {} on (counted from 0); its bytes are learned as "
                    "they are",
                    quote(file.path().string()), *bad));
}

/// Takes JSON lines; each is a document.
class LineReader {
 public:
  LineReader(const fs::path& path, MemoryStream& stream) : path_(path.string()), stream_(stream) {}

  void take(std::string_view piece) {
    for (;;) {
      const std::size_t end = piece.find('\n');
      line_ += piece.substr(0, end);
      if (line_.size() > kLongestLine)
        throw UserError(
            fmt::format("{}:{}: the line is longer than {} bytes", path_, number_, kLongestLine));
      if (end == std::string_view::npos) return;
      finish_line();
      piece.remove_prefix(end + 1);
    }
  }

  void finish() {
    finish_line();
    if (documents_ == 0) throw UserError(fmt::format("{} holds no documents", quote(path_)));
  }

 private:
  void finish_line() {
    if (line_.find_first_not_of(" \t\r") != std::string::npos) {
      const std::string where = fmt::format("{}:{}", path_, number_);
      const JsonValue value = parse_json(line_, where);
      const JsonValue* text = value.find("text");
      const auto* content = text == nullptr ? nullptr : text->as<std::string>();
      if (content == nullptr)
        throw UserError(
            fmt::format("{}: each line must be an object with a string \"text\", as in "
                        "{{\"text\": \"...\"}}",
                        where));
      if (!content->empty()) {
        stream_.append(*content);
        stream_.end_document();
        ++documents_;
      }
    }
    line_.clear();
    ++number_;
  }

  std::string path_;
  MemoryStream& stream_;
  std::string line_;
  Index number_ = 1;
  Index documents_ = 0;
};

}  // namespace

std::unique_ptr<TokenStream> read_text_files(std::span<const fs::path> paths,
                                             std::vector<std::string>& warnings) {
  std::vector<InputFile> files;
  Index most_tokens = 0;
  for (const fs::path& path : paths) {
    const InputFile& file = files.emplace_back(path);
    if (file.bytes() == 0) throw UserError(fmt::format("{} is empty", quote(path.string())));
    refuse_binary(file);
    most_tokens += files.back().bytes() + 1;
  }
  // Claimed at once: growing would copy, and pages that stay unused cost nothing.
  auto stream = std::make_unique<MemoryStream>();
  stream->reserve(most_tokens);
  for (const InputFile& file : files) {
    const fs::path& path = file.path();
    if (path.extension() == ".jsonl") {
      LineReader reader(path, *stream);
      for_each_piece(file, [&](std::string_view piece) { reader.take(piece); });
      reader.finish();
    } else {
      read_document(file, *stream, warnings);
    }
  }
  return stream;
}

}  // namespace megatrain::io
