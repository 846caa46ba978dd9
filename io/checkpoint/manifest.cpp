#include "io/checkpoint/manifest.h"

#include <fmt/format.h>

#include <set>

#include "io/file.h"
#include "io/hf_fields.h"
#include "io/json.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

constexpr std::string_view kFormat = "megatrain-checkpoint";
constexpr Index kVersion = 1;

/// An object of the manifest that has exactly the keys it should have.
class Reader {
 public:
  Reader(const JsonValue& value, const std::string& source, std::set<std::string_view> keys)
      : fields_(value, source) {
    for (const JsonMember& member : fields_.members())
      if (!keys.contains(member.name))
        throw UserError(
            fmt::format("{}: unknown key {}; a newer version of MegaTrain may have "
                        "written it",
                        source, quote(member.name)));
  }

  [[nodiscard]] Index integer(std::string_view key) const {
    const auto value = fields_.integer(key);
    if (!value || *value < 0) throw fields_.refusal(key, "it must be a whole number, 0 or more");
    return *value;
  }
  [[nodiscard]] std::string text(std::string_view key) const {
    const auto value = fields_.text(key);
    if (!value) throw fields_.refusal(key, "it must be a string");
    return *value;
  }
  /// A file of the checkpoint's own folder.
  [[nodiscard]] std::string file_name(std::string_view key) const {
    std::string name = text(key);
    if (!is_plain_name(name)) throw fields_.refusal(key, "it must be a plain file name");
    return name;
  }
  [[nodiscard]] Checksum checksum(std::string_view key) const {
    return checksum_of(*require_member(key), key);
  }
  [[nodiscard]] Checksum checksum_of(const JsonValue& value, std::string_view key) const {
    const auto* text = value.as<std::string>();
    const auto sum = text != nullptr ? parse_checksum(*text) : std::nullopt;
    if (!sum) throw fields_.refusal(key, "a checksum has 16 hexadecimal digits");
    return *sum;
  }
  [[nodiscard]] const JsonValue::Array& array(std::string_view key) const {
    const auto* values = require_member(key)->as<JsonValue::Array>();
    if (values == nullptr) throw fields_.refusal(key, "it must be a list");
    return *values;
  }
  [[nodiscard]] const JsonValue* require_member(std::string_view key) const {
    const JsonValue* value = fields_.find(key);
    if (value == nullptr) throw fields_.refusal(key, "it is missing");
    return value;
  }
  [[nodiscard]] UserError refusal(std::string_view key, std::string_view why) const {
    return fields_.refusal(key, why);
  }

 private:
  Fields fields_;
};

Index elements(const std::vector<Index>& shape) {
  Index product = 1;
  for (const Index size : shape) product = checked_mul(product, size);
  return product;
}

ManifestDataset read_dataset(const JsonValue& value, const std::string& source, Index block_bytes) {
  const Reader reader(value, source, {"path", "dtype", "shape", "xxh3"});
  ManifestDataset dataset;
  dataset.path = reader.text("path");
  const auto type = file_type(reader.text("dtype"));
  if (!type || bits_of(*type) % 8 != 0) throw reader.refusal("dtype", "no type of whole bytes");
  dataset.type = *type;
  for (const JsonValue& size : reader.array("shape")) {
    const auto* number = size.as<std::int64_t>();
    if (number == nullptr || *number < 0) throw reader.refusal("shape", "a size is 0 or more");
    dataset.shape.push_back(*number);
  }
  constexpr Index kMostBytes = Index{1} << 60;  // leaves room for sums of sizes
  if (checked_mul(elements(dataset.shape), bits_of(*type) / 8) > kMostBytes)
    throw reader.refusal("shape", "no file is as large");
  for (const JsonValue& sum : reader.array("xxh3"))
    dataset.blocks.push_back(reader.checksum_of(sum, "xxh3"));
  if (static_cast<Index>(dataset.blocks.size()) != ceil_div(dataset.bytes(), block_bytes))
    throw UserError(fmt::format("{}: {} has {} bytes, but checksums of {} blocks of {} bytes",
                                source, quote(dataset.path), dataset.bytes(), dataset.blocks.size(),
                                block_bytes));
  return dataset;
}

ManifestShard read_shard(const JsonValue& value, const std::string& source, Index block_bytes) {
  const Reader reader(value, source, {"name", "bytes", "metadata_xxh3", "datasets"});
  ManifestShard shard;
  shard.name = reader.file_name("name");
  shard.bytes = reader.integer("bytes");
  shard.metadata = reader.checksum("metadata_xxh3");
  for (const JsonValue& dataset : reader.array("datasets"))
    shard.datasets.push_back(read_dataset(dataset, source, block_bytes));
  return shard;
}

ManifestFile read_file(const JsonValue& value, const std::string& source) {
  const Reader reader(value, source, {"name", "bytes", "xxh3"});
  return {reader.file_name("name"), reader.integer("bytes"), reader.checksum("xxh3")};
}

}  // namespace

Index ManifestDataset::bytes() const { return elements(shape) * (bits_of(type) / 8); }

std::string to_json(const Manifest& manifest) {
  JsonWriter json(1);
  json.begin_object().member("format", kFormat).member("version", kVersion);
  json.member("step", manifest.step).member("block_bytes", manifest.block_bytes);
  json.key("aliases").begin_object();
  for (const auto& [alias, name] : manifest.aliases) json.member(alias, name);
  json.end_object();
  json.key("files").begin_array();
  for (const ManifestFile& file : manifest.files) {
    json.begin_object().member("name", file.name).member("bytes", file.bytes);
    json.member("xxh3", to_text(file.checksum)).end_object();
  }
  json.end_array();
  json.key("shards").begin_array();
  for (const ManifestShard& shard : manifest.shards) {
    json.begin_object().member("name", shard.name).member("bytes", shard.bytes);
    json.member("metadata_xxh3", to_text(shard.metadata)).key("datasets").begin_array();
    for (const ManifestDataset& dataset : shard.datasets) {
      json.begin_object().member("path", dataset.path).member("dtype", name(dataset.type));
      json.key("shape").begin_array();
      for (const Index size : dataset.shape) json.value(size);
      json.end_array().key("xxh3").begin_array();
      for (const Checksum block : dataset.blocks) json.value(to_text(block));
      json.end_array().end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return json.text() + "\n";
}

Manifest parse_manifest(std::string_view text, std::string_view source_name) {
  const std::string source(source_name);
  const JsonValue root = parse_json(text, source);
  const Reader reader(root, source,
                      {"format", "version", "step", "block_bytes", "aliases", "files", "shards"});
  if (reader.text("format") != kFormat)
    throw reader.refusal("format", fmt::format("a checkpoint says '{}'", kFormat));
  if (reader.integer("version") != kVersion)
    throw reader.refusal("version", fmt::format("this MegaTrain reads version {}", kVersion));
  Manifest manifest;
  manifest.step = reader.integer("step");
  manifest.block_bytes = reader.integer("block_bytes");
  constexpr Index kMostBlockBytes = Index{1} << 30;
  if (manifest.block_bytes < 4096 || manifest.block_bytes > kMostBlockBytes ||
      manifest.block_bytes % 4096 != 0)
    throw reader.refusal("block_bytes", "blocks are whole pages of 4096 bytes, 1 GiB at most");

  const auto* aliases = reader.require_member("aliases")->as<JsonValue::Object>();
  if (aliases == nullptr) throw reader.refusal("aliases", "it must be an object");
  for (const JsonMember& alias : *aliases) {
    const auto* name = alias.value.as<std::string>();
    if (name == nullptr) throw reader.refusal("aliases", "a name must be a string");
    manifest.aliases[alias.name] = *name;
  }
  std::set<std::string> names{std::string(kManifestName), std::string(kCompleteName)};
  const auto add_name = [&](const std::string& name) {
    if (!names.insert(name).second)
      throw UserError(fmt::format("{}: {} is listed twice", source, quote(name)));
  };
  for (const JsonValue& file : reader.array("files")) {
    manifest.files.push_back(read_file(file, source));
    add_name(manifest.files.back().name);
  }
  std::set<std::string> paths;
  for (const JsonValue& shard : reader.array("shards")) {
    manifest.shards.push_back(read_shard(shard, source, manifest.block_bytes));
    add_name(manifest.shards.back().name);
    for (const ManifestDataset& dataset : manifest.shards.back().datasets)
      if (!paths.insert(dataset.path).second)
        throw UserError(fmt::format("{}: {} is listed twice", source, quote(dataset.path)));
  }
  return manifest;
}

}  // namespace megatrain::io
