#pragma once
/// @file
/// Typed access to the members of a JSON object that a person wrote.

#include <optional>
#include <string>
#include <string_view>

#include "io/json.h"

namespace megatrain::io {

/// A view of one object. Messages name the source and the key. A member that is null counts as
/// absent unless find() is asked.
class Fields {
 public:
  /// @throws UserError when `value` is no object
  Fields(const JsonValue& value, std::string source);

  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] const JsonValue::Object& members() const { return *object_; }
  /// The member, null included; nullptr when absent.
  [[nodiscard]] const JsonValue* find(std::string_view key) const { return value_->find(key); }
  /// The member; nullptr when absent or null.
  [[nodiscard]] const JsonValue* given(std::string_view key) const;

  // Each throws UserError when the member has another type.
  [[nodiscard]] std::optional<Index> integer(std::string_view key) const;
  [[nodiscard]] std::optional<double> number(std::string_view key) const;  ///< finite
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  /// A count in [1, 2^31). @throws UserError also when it is absent
  [[nodiscard]] Index count(std::string_view key) const;
  [[nodiscard]] Index count(std::string_view key, Index absent) const;

  /// The error "SOURCE: 'KEY' is VALUE: WHY".
  [[nodiscard]] UserError refusal(std::string_view key, std::string_view why) const;

 private:
  [[nodiscard]] Index checked_count(std::string_view key, Index value) const;

  const JsonValue* value_;
  const JsonValue::Object* object_;
  std::string source_;
};

}  // namespace megatrain::io
