#pragma once
/// @file
/// Reads JSON that may be hostile: strict, duplicate keys refused, depth limited. Two ways: as
/// events (large files whose form is known) or as a value (small ones).

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/types.h"
#include "io/json_writer.h"

namespace megatrain::io {

/// Receives a JSON text piece by piece, in order. Exceptions thrown from here end the parse.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void integer(std::int64_t value) = 0;
  /// Anything that is no 63-bit integer; 2^63 and more arrive rounded.
  virtual void real(double value) = 0;
  virtual void string(std::string value) = 0;
  virtual void key(std::string name) = 0;
  virtual void begin_object() = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
};

/// Parses the whole of `text`. @param source  the file, for messages
/// @param max_depth  objects and arrays that may be open at once
/// @throws UserError naming source and place for anything but one valid JSON value: bad syntax or
/// UTF-8, two equal keys in an object, too deep
void parse_json(std::string_view text, std::string_view source, JsonEvents& events,
                int max_depth = 64);

struct JsonMember;

/// A JSON value; objects keep the order of the file.
class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;
  using Variant =
      std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object>;

  JsonValue();
  explicit JsonValue(Variant value);

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  /// The value as T, or nullptr when it is something else.
  template <typename T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&value_);
  }
  template <typename T>
  [[nodiscard]] T* as() {
    return std::get_if<T>(&value_);
  }
  /// A member of an object; nullptr when there is none or this is no object.
  [[nodiscard]] const JsonValue* find(std::string_view name) const;
  [[nodiscard]] const Variant& variant() const { return value_; }

 private:
  Variant value_;  // null unless told otherwise
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

// Here, where JsonMember is complete: clang needs that, and so does the standard.
inline JsonValue::JsonValue() = default;
inline JsonValue::JsonValue(Variant value) : value_(std::move(value)) {}

/// @throws UserError as the other parse_json
JsonValue parse_json(std::string_view text, std::string_view source);

/// Appends a value to a writer.
void write(JsonWriter& writer, const JsonValue& value);

/// One line, for messages.
std::string to_text(const JsonValue& value);

}  // namespace megatrain::io
