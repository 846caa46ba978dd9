#include "launcher/options/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace megatrain::launcher {

namespace {

bool is_bare_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
         c == '_';
}

std::string utf8(std::uint32_t code) {
  std::string out;
  const auto tail = [&](int shift) { out += static_cast<char>(0x80U | ((code >> shift) & 0x3FU)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0U | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0U | (code >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0U | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
  return out;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  std::vector<TomlEntry> parse() {
    std::string table;
    std::vector<std::string> tables;
    for (skip_space_and_lines(); !at_end(); skip_space_and_lines()) {
      if (take('[')) {
        if (peek() == '[') fail("arrays of tables are not used here");
        table = key();
        expect(']', "']' after the table's name");
        if (std::ranges::find(tables, table) != tables.end())
          fail(fmt::format("table [{}] is given twice", table));
        tables.push_back(table);
      } else {
        entry(table);
      }
      end_of_line();
    }
    return std::move(entries_);
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    throw UserError(fmt::format("{} line {}: {}", source_, line_, why));
  }
  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
  [[nodiscard]] char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c, std::string_view what) {
    skip_space();
    if (!take(c)) fail(fmt::format("expected {}", what));
  }

  void skip_space() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }
  void skip_comment() {
    if (peek() == '#')
      while (!at_end() && text_[at_] != '\n') ++at_;
  }
  bool take_line_end() {
    if (text_.substr(at_).starts_with("\r\n")) ++at_;
    if (!take('\n')) return false;
    ++line_;
    return true;
  }
  void skip_space_and_lines() {
    do {
      skip_space();
      skip_comment();
    } while (take_line_end());
  }
  void end_of_line() {
    skip_space();
    skip_comment();
    if (!at_end() && !take_line_end()) fail("expected the end of the line");
  }

  std::string key() {
    skip_space();
    if (peek() == '"' || peek() == '\'') return string();
    const std::size_t begin = at_;
    while (!at_end() && is_bare_character(text_[at_])) ++at_;
    if (at_ == begin) fail("expected a name");
    const std::string name(text_.substr(begin, at_ - begin));
    skip_space();
    if (peek() == '.') fail("dotted names are not used here");
    return name;
  }

  void entry(const std::string& table) {
    TomlEntry entry;
    entry.table = table;
    entry.line = line_;
    entry.key = key();
    for (const TomlEntry& earlier : entries_)
      if (earlier.table == table && earlier.key == entry.key)
        fail(fmt::format("'{}' is given twice (before in line {})", entry.key, earlier.line));
    expect('=', fmt::format("'=' after '{}'", entry.key));
    skip_space();
    entry.array = take('[');
    if (entry.array)
      array(entry.values);
    else
      entry.values.push_back(scalar());
    entries_.push_back(std::move(entry));
  }

  void array(std::vector<std::string>& values) {
    for (skip_space_and_lines(); !take(']'); skip_space_and_lines()) {
      if (at_end()) fail("the array does not end");
      values.push_back(scalar());
      skip_space_and_lines();
      if (!take(',') && peek() != ']') fail("expected ',' or ']' in the array");
    }
  }

  /// A string, or a number or boolean as it is written (underscores between digits left out).
  std::string scalar() {
    if (peek() == '"' || peek() == '\'') return string();
    std::string value;
    while (!at_end() && (is_bare_character(text_[at_]) || peek() == '.' || peek() == '+')) {
      if (text_[at_] != '_') value += text_[at_];
      ++at_;
    }
    const bool number = !value.empty() && (value.front() == '-' || value.front() == '+' ||
                                           (value.front() >= '0' && value.front() <= '9'));
    if (!number && value != "true" && value != "false")
      fail("expected a value: a number, true, false, a \"string\" or an [array] of them");
    if (value.front() == '+') value.erase(0, 1);
    return value;
  }

  std::string string() {
    const char quote = text_[at_];
    if (text_.substr(at_).starts_with(std::string(3, quote)))
      fail("strings of several lines are not used here");
    ++at_;
    std::string value;
    while (!take(quote)) {
      if (at_end() || peek() == '\n') fail("the string does not end");
      if (quote == '"' && take('\\'))
        value += escape();
      else
        value += text_[at_++];
    }
    return value;
  }

  std::string escape() {
    constexpr std::string_view kNames = "btnfr\"\\";
    constexpr std::string_view kCharacters = "\b\t\n\f\r\"\\";
    const char name = peek();
    if (const auto known = kNames.find(name); name != '\0' && known != std::string_view::npos) {
      ++at_;
      return {kCharacters[known]};
    }
    if (name != 'u' && name != 'U') fail("an escape that TOML does not know");
    ++at_;
    std::uint32_t code = 0;
    for (int digits = name == 'u' ? 4 : 8; digits > 0; --digits) {
      const char c = peek();
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) fail("expected a hexadecimal digit");
      code = code << 4 | static_cast<std::uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
      ++at_;
    }
    if (code == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail("an escape that names no character");
    return utf8(code);
  }

  std::string_view text_;
  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<TomlEntry> entries_;
};

}  // namespace

std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view source) {
  // Some editors begin UTF-8 files by a mark.
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return Parser(text, source).parse();
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\u{:04x}", byte);
    else
      out += c;
  }
  return out + '"';
}

}  // namespace megatrain::launcher
