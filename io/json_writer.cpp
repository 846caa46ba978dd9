#include "io/json_writer.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "io/text.h"

namespace megatrain::io {

namespace {

template <typename Real>
std::string real_text(Real number) {
  if (!std::isfinite(number)) return "null";
  char buffer[64];
  const auto [end, status] = std::to_chars(buffer, buffer + sizeof(buffer), number);
  std::string text(buffer, end);
  // A reader with types (Python) would take "1" for an integer.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

JsonWriter& JsonWriter::begin_object() { return open('{'); }
JsonWriter& JsonWriter::end_object() { return close('}'); }
JsonWriter& JsonWriter::begin_array() { return open('['); }
JsonWriter& JsonWriter::end_array() { return close(']'); }

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_string(name);
  text_ += indent_ > 0 ? ": " : ":";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::null() { return scalar("null"); }
JsonWriter& JsonWriter::value(double number) { return scalar(real_text(number)); }
JsonWriter& JsonWriter::value(float number) { return scalar(real_text(number)); }

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  append_string(text);
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  empty_.push_back(true);
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  const bool empty = empty_.back();
  empty_.pop_back();
  if (!empty) break_line();
  text_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::scalar(std::string_view text) {
  separate();
  text_ += text;
  return *this;
}

void JsonWriter::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (empty_.empty()) return;
  if (!empty_.back()) text_ += ',';
  empty_.back() = false;
  break_line();
}

void JsonWriter::break_line() {
  if (indent_ <= 0) return;
  text_ += '\n';
  text_.append(empty_.size() * static_cast<std::size_t>(indent_), ' ');
}

void JsonWriter::append_string(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0)
      text_ += "\xef\xbf\xbd";
    else if (c == '"' || c == '\\')
      (text_ += '\\') += c;
    else if (c == '\n')
      text_ += "\\n";
    else if (c == '\t')
      text_ += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20)
      text_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      text_ += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  text_ += '"';
}

}  // namespace megatrain::io
