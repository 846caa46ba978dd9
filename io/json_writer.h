#pragma once
/// @file
/// Writes JSON: metrics lines, plans, config files.

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain::io {

/// Builds one JSON text. Commas, indentation and escapes are its own; the caller keeps begin and
/// end calls matched. Strings are made valid UTF-8 (bad bytes become U+FFFD).
///
///     JsonWriter json;
///     json.begin_object().member("step", 3).member("loss", 2.5).end_object();
///     json.text();  // {"step":3,"loss":2.5}
class JsonWriter {
 public:
  /// @param indent  spaces a level, one member a line; 0: everything on one line
  explicit JsonWriter(int indent = 0) : indent_(indent) {}

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  /// Names the value that comes next inside an object.
  JsonWriter& key(std::string_view name);

  JsonWriter& null();
  template <std::same_as<bool> T>
  JsonWriter& value(T flag) {
    return scalar(flag ? "true" : "false");
  }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& value(T number) {
    return scalar(std::to_string(number));
  }
  /// The shortest text that reads back as the same value, always with a point or an exponent;
  /// null when not finite.
  JsonWriter& value(double number);
  JsonWriter& value(float number);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }

  /// key() and value() in one.
  template <typename T>
  JsonWriter& member(std::string_view name, const T& of) {
    return key(name).value(of);
  }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& scalar(std::string_view text);
  void separate();
  void break_line();
  void append_string(std::string_view text);

  std::string text_;
  int indent_ = 0;
  std::vector<bool> empty_;  ///< of each open object or array: nothing written in it yet
  bool after_key_ = false;
};

}  // namespace megatrain::io
