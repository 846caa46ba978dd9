#include "io/checkpoint/training_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/hf_fields.h"
#include "io/json.h"
#include "io/text.h"

namespace megatrain::io {

std::string to_json(const TrainingRecord& record) {
  JsonWriter json(1);
  json.begin_object().member("version", 1).key("state").begin_object();
  for_each_field(record.state,
                 [&](std::string_view name, auto value) { json.member(name, value); });
  json.end_object().key("options").begin_object();
  for (const auto& [name, value] : record.options) json.member(name, value);
  json.end_object().member("numerics_key", record.numerics_key).end_object();
  return json.text() + "\n";
}

TrainingRecord parse_training_record(std::string_view text, std::string_view source_name) {
  const std::string source(source_name);
  const JsonValue root = parse_json(text, source);
  const Fields fields(root, source);
  if (fields.integer("version") != 1)
    throw fields.refusal("version", "this MegaTrain reads version 1");
  TrainingRecord record;
  const JsonValue* state = fields.given("state");
  if (state == nullptr) throw fields.refusal("state", "it is missing");
  const Fields state_fields(*state, source);
  std::size_t known = 0;
  for_each_field(record.state, [&]<class Field>(std::string_view name, Field& field) {
    ++known;
    if constexpr (std::is_same_v<Field, bool>) {
      const auto value = state_fields.boolean(name);
      if (!value) throw state_fields.refusal(name, "it must be true or false");
      field = *value;
    } else if constexpr (std::is_floating_point_v<Field>) {
      const auto value = state_fields.number(name);
      if (!value) throw state_fields.refusal(name, "it must be a number");
      field = *value;
    } else {
      const auto value = state_fields.integer(name);
      if (!value || *value < 0) throw state_fields.refusal(name, "it must be a count");
      field = *value;
    }
  });
  if (state_fields.members().size() != known)
    throw UserError(fmt::format("{}: 'state' has {} fields, but this MegaTrain knows {}", source,
                                state_fields.members().size(), known));
  const JsonValue* options = fields.given("options");
  if (options == nullptr) throw fields.refusal("options", "it is missing");
  for (const JsonMember& option : Fields(*options, source).members()) {
    const auto* value = option.value.as<std::string>();
    if (value == nullptr)
      throw UserError(fmt::format("{}: option {} must be a string", source, quote(option.name)));
    record.options.emplace_back(option.name, *value);
  }
  record.numerics_key = fields.text("numerics_key").value_or("");
  return record;
}

}  // namespace megatrain::io
