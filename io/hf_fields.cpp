#include "io/hf_fields.h"

#include <fmt/format.h>

#include <cmath>

#include "io/text.h"

namespace megatrain::io {

Fields::Fields(const JsonValue& value, std::string source)
    : value_(&value), object_(value.as<JsonValue::Object>()), source_(std::move(source)) {
  if (object_ == nullptr) throw UserError(fmt::format("{}: must be a JSON object", source_));
}

const JsonValue* Fields::given(std::string_view key) const {
  const JsonValue* value = find(key);
  return value != nullptr && value->is_null() ? nullptr : value;
}

std::optional<Index> Fields::integer(std::string_view key) const {
  const JsonValue* value = given(key);
  if (value == nullptr) return std::nullopt;
  const auto* integer = value->as<std::int64_t>();
  if (integer == nullptr) throw refusal(key, "it must be a whole number");
  return *integer;
}

std::optional<double> Fields::number(std::string_view key) const {
  const JsonValue* value = given(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* integer = value->as<std::int64_t>()) return static_cast<double>(*integer);
  const auto* real = value->as<double>();
  if (real == nullptr || !std::isfinite(*real)) throw refusal(key, "it must be a number");
  return *real;
}

std::optional<bool> Fields::boolean(std::string_view key) const {
  const JsonValue* value = given(key);
  if (value == nullptr) return std::nullopt;
  const auto* flag = value->as<bool>();
  if (flag == nullptr) throw refusal(key, "it must be true or false");
  return *flag;
}

std::optional<std::string> Fields::text(std::string_view key) const {
  const JsonValue* value = given(key);
  if (value == nullptr) return std::nullopt;
  const auto* text = value->as<std::string>();
  if (text == nullptr) throw refusal(key, "it must be a string");
  return *text;
}

Index Fields::count(std::string_view key) const {
  const auto value = integer(key);
  if (!value) throw UserError(fmt::format("{}: {} is missing", source_, quote(key)));
  return checked_count(key, *value);
}

Index Fields::count(std::string_view key, Index absent) const {
  const auto value = integer(key);
  return value ? checked_count(key, *value) : absent;
}

UserError Fields::refusal(std::string_view key, std::string_view why) const {
  const JsonValue* value = find(key);
  std::string shown = value == nullptr ? "absent" : quote(to_text(*value));
  if (value != nullptr) shown = shown.substr(1, shown.size() - 2);
  return UserError(fmt::format("{}: {} is {}: {}", source_, quote(key), shown, why));
}

Index Fields::checked_count(std::string_view key, Index value) const {
  if (value < 1 || value > std::numeric_limits<std::int32_t>::max())
    throw refusal(key, "it must be at least 1 and below 2^31");
  return value;
}

}  // namespace megatrain::io
