#include "io/json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "io/text.h"

namespace megatrain::io {

namespace {

/// Turns the library's calls into ours, watching depth and keys.
class Adapter : public nlohmann::json_sax<nlohmann::json> {
 public:
  Adapter(JsonEvents& events, std::string_view source, int max_depth)
      : events_(events), source_(source), max_depth_(max_depth) {}

  bool null() override { return events_.null(), true; }
  bool boolean(bool value) override { return events_.boolean(value), true; }
  bool number_integer(std::int64_t value) override { return events_.integer(value), true; }
  bool number_unsigned(std::uint64_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      events_.real(static_cast<double>(value));
    else
      events_.integer(static_cast<std::int64_t>(value));
    return true;
  }
  bool number_float(double value, const std::string&) override { return events_.real(value), true; }
  bool string(std::string& value) override { return events_.string(std::move(value)), true; }
  bool binary(nlohmann::json::binary_t&) override { return false; }

  bool start_object(std::size_t) override {
    open();
    events_.begin_object();
    return true;
  }
  bool key(std::string& name) override {
    if (!keys_.back().insert(name).second)
      throw UserError(
          fmt::format("{}: the key {} appears twice in one object", source_, quote(name)));
    events_.key(std::move(name));
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    events_.end_object();
    return true;
  }
  bool start_array(std::size_t) override {
    open();
    events_.begin_array();
    return true;
  }
  bool end_array() override {
    keys_.pop_back();
    events_.end_array();
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // The library's text is "[json.exception...] parse error at line 1, column 2: why; last read:
    // '...'", and the token that it quotes may be huge.
    std::string_view why = error.what();
    if (const auto bracket = why.find("] "); bracket != std::string_view::npos)
      why.remove_prefix(bracket + 2);
    const std::string quoted = quote(why.substr(0, why.find("; last read")));
    throw UserError(fmt::format("{}: not valid JSON at byte {}: {}", source_, position,
                                std::string_view(quoted).substr(1, quoted.size() - 2)));
  }

 private:
  void open() {
    if (static_cast<int>(keys_.size()) >= max_depth_)
      throw UserError(fmt::format("{}: more than {} objects and arrays inside one another", source_,
                                  max_depth_));
    keys_.emplace_back();
  }

  JsonEvents& events_;
  std::string_view source_;
  int max_depth_;
  std::vector<std::unordered_set<std::string>> keys_;  ///< one set an open object or array
};

/// Builds a value from events.
class Builder : public JsonEvents {
 public:
  void null() override { add(JsonValue()); }
  void boolean(bool value) override { add(JsonValue(value)); }
  void integer(std::int64_t value) override { add(JsonValue(value)); }
  void real(double value) override { add(JsonValue(value)); }
  void string(std::string value) override { add(JsonValue(std::move(value))); }
  void key(std::string name) override { open_.back().name = std::move(name); }
  void begin_object() override { open_.push_back({JsonValue(JsonValue::Object()), {}}); }
  void begin_array() override { open_.push_back({JsonValue(JsonValue::Array()), {}}); }
  void end_object() override { close(); }
  void end_array() override { close(); }

  JsonValue take() { return std::move(root_); }

 private:
  struct Open {
    JsonValue value;
    std::string name;  ///< of the member that comes next
  };

  void close() {
    JsonValue done = std::move(open_.back().value);
    open_.pop_back();
    add(std::move(done));
  }
  void add(JsonValue value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (auto* array = open_.back().value.as<JsonValue::Array>())
      array->push_back(std::move(value));
    else
      open_.back().value.as<JsonValue::Object>()->push_back(
          {std::move(open_.back().name), std::move(value)});
  }

  JsonValue root_;
  std::vector<Open> open_;
};

}  // namespace

void parse_json(std::string_view text, std::string_view source, JsonEvents& events, int max_depth) {
  // The library takes a NUL for the end of the text and would not look at what follows.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos)
    throw UserError(fmt::format("{}: not valid JSON at byte {}: a NUL", source, nul));
  Adapter adapter(events, source, max_depth);
  nlohmann::json::sax_parse(text.begin(), text.end(), &adapter);
}

JsonValue parse_json(std::string_view text, std::string_view source) {
  Builder builder;
  parse_json(text, source, builder);
  return builder.take();
}

const JsonValue* JsonValue::find(std::string_view name) const {
  if (const auto* object = as<Object>())
    for (const JsonMember& member : *object)
      if (member.name == name) return &member.value;
  return nullptr;
}

void write(JsonWriter& writer, const JsonValue& value) {
  if (const auto* object = value.as<JsonValue::Object>()) {
    writer.begin_object();
    for (const JsonMember& member : *object) write(writer.key(member.name), member.value);
    writer.end_object();
  } else if (const auto* array = value.as<JsonValue::Array>()) {
    writer.begin_array();
    for (const JsonValue& element : *array) write(writer, element);
    writer.end_array();
  } else if (const auto* text = value.as<std::string>()) {
    writer.value(*text);
  } else if (const auto* real = value.as<double>()) {
    writer.value(*real);
  } else if (const auto* integer = value.as<std::int64_t>()) {
    writer.value(*integer);
  } else if (const auto* flag = value.as<bool>()) {
    writer.value(*flag);
  } else {
    writer.null();
  }
}

std::string to_text(const JsonValue& value) {
  JsonWriter writer;
  write(writer, value);
  return writer.text();
}

}  // namespace megatrain::io
