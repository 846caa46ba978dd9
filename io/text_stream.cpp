#include <fmt/format.h>

#include <algorithm>
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

void read_document(const InputFile& file, MemoryStream& stream) {
  for_each_piece(file, [&](std::string_view piece) { stream.append(piece); });
  stream.end_document();
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

std::unique_ptr<TokenStream> read_text_files(std::span<const fs::path> paths) {
  std::vector<InputFile> files;
  Index most_tokens = 0;
  for (const fs::path& path : paths) {
    files.emplace_back(path);
    most_tokens += files.back().bytes() + 1;
  }
  // Claimed at once: growing would copy, and pages that stay unused cost nothing.
  auto stream = std::make_unique<MemoryStream>();
  stream->reserve(most_tokens);
  for (const InputFile& file : files) {
    const fs::path& path = file.path();
    if (file.bytes() == 0) throw UserError(fmt::format("{} is empty", quote(path.string())));
    if (path.extension() == ".jsonl") {
      LineReader reader(path, *stream);
      for_each_piece(file, [&](std::string_view piece) { reader.take(piece); });
      reader.finish();
    } else {
      read_document(file, *stream);
    }
  }
  return stream;
}

}  // namespace megatrain::io
