#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "io/file.h"
#include "io/text.h"
#include "io/token_stream.h"

namespace megatrain::io {

namespace fs = std::filesystem;

namespace {

/// What a file's beginning says.
struct Layout {
  Index header_bytes = 0;
  Index width = 2;  ///< bytes a token
  Index tokens = 0;
};

// llm.c: 256 32-bit numbers, the first three being magic, version and count.
constexpr Index kLlmcHeader = Index{256} * 4;
constexpr std::int32_t kLlmcTokens16 = 20240520;
constexpr std::int32_t kLlmcTokens32 = 20240801;
struct OtherFile {
  std::int32_t magic;
  std::string_view what;
};
constexpr OtherFile kOtherFiles[] = {{20240522, "an llm.c evaluation set"},
                                     {20240326, "an llm.c model"},
                                     {20240327, "an llm.c optimizer state"}};

/// Bytes of the check at opening.
constexpr Index kCheckedBytes = Index{1} << 30;
constexpr Index kCheckTokens = Index{1} << 20;

Layout llmc_layout(const InputFile& file, std::span<const std::int32_t, 3> head) {
  const std::int32_t magic = head[0], version = head[1], count = head[2];
  const std::string source = quote(file.path().string());
  const std::int32_t expected_version = magic == kLlmcTokens16 ? 1 : 7;
  if (version != expected_version)
    throw UserError(
        fmt::format("{}: llm.c token file with magic {} and version {}; version {} is "
                    "read",
                    source, magic, version, expected_version));
  const Layout layout{kLlmcHeader, magic == kLlmcTokens16 ? 2 : 4, count};
  if (count < 0 || file.bytes() != kLlmcHeader + layout.width * layout.tokens)
    throw UserError(fmt::format(
        "{}: its header promises {} tokens of {} bytes, so the file should have {} bytes, but has "
        "{}: it is cut short or damaged",
        source, count, layout.width, kLlmcHeader + layout.width * layout.tokens, file.bytes()));
  return layout;
}

Layout find_layout(const InputFile& file) {
  const std::string source = quote(file.path().string());
  std::array<std::int32_t, 3> head{};
  if (file.bytes() >= static_cast<Index>(sizeof(head)))
    file.read(0, std::as_writable_bytes(std::span(head)));
  if (head[0] == kLlmcTokens16 || head[0] == kLlmcTokens32) return llmc_layout(file, head);
  for (const OtherFile& other : kOtherFiles)
    if (head[0] == other.magic)
      throw UserError(fmt::format("{} is {}, not training data", source, other.what));
  fs::path index = file.path();
  if (file_exists(index.replace_extension(".idx")))
    throw UserError(
        fmt::format("{} has an index beside it ({}): Megatron's datasets are not read; "
                    "convert it to headerless 16-bit tokens or llm.c's .bin",
                    source, index.filename().string()));
  if (file.bytes() % 2 != 0)
    throw UserError(
        fmt::format("{}: without an llm.c header the file is read as 16-bit token ids, "
                    "but its size of {} bytes is odd",
                    source, file.bytes()));
  return {0, 2, file.bytes() / 2};
}

class TokenFile : public TokenStream {
 public:
  TokenFile(const fs::path& path, Index vocabulary)
      : file_(path), layout_(find_layout(file_)), vocabulary_(vocabulary) {
    if (layout_.tokens == 0)
      throw UserError(fmt::format("{} holds no tokens", quote(path.string())));
    const Index checked = std::min(layout_.tokens, kCheckedBytes / layout_.width);
    std::vector<std::int32_t> tokens;
    for (Index first = 0; first < checked; first += kCheckTokens) {
      tokens.resize(static_cast<std::size_t>(std::min(kCheckTokens, checked - first)));
      read(first, tokens);
    }
  }

  [[nodiscard]] Index tokens() const override { return layout_.tokens; }

  void read(Index first, std::span<std::int32_t> out) const override {
    require(first >= 0 && first + static_cast<Index>(out.size()) <= layout_.tokens,
            "TokenFile::read: range outside the file");
    std::span<std::byte> bytes = std::as_writable_bytes(out);
    // 16-bit ids are read into the upper half and widened upwards in place: element i is written
    // at 4i, below every byte (2n + 2j, j > i) that is still to be read.
    if (layout_.width == 2) bytes = bytes.last(out.size() * 2);
    file_.read(layout_.header_bytes + first * layout_.width, bytes);
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::uint32_t id = 0;
      if (layout_.width == 2) {
        std::uint16_t narrow = 0;
        std::memcpy(&narrow, bytes.data() + 2 * i, sizeof(narrow));
        id = narrow;
      } else {
        std::memcpy(&id, bytes.data() + 4 * i, sizeof(id));
      }
      if (id >= static_cast<std::uint64_t>(vocabulary_))
        throw UserError(fmt::format("{}: token {} is id {}, but the model's vocabulary is {}",
                                    quote(file_.path().string()), first + static_cast<Index>(i), id,
                                    vocabulary_));
      out[i] = static_cast<std::int32_t>(id);
    }
  }

 private:
  InputFile file_;
  Layout layout_;
  Index vocabulary_;
};

}  // namespace

std::unique_ptr<TokenStream> open_token_file(const fs::path& path, Index vocabulary) {
  return std::make_unique<TokenFile>(path, vocabulary);
}

}  // namespace megatrain::io
