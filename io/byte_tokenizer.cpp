#include "io/byte_tokenizer.h"

#include <fmt/format.h>

#include <array>

#include "io/hf_folder.h"
#include "io/json.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

constexpr std::string_view kMark = "megatrain_tokenizer";
constexpr std::string_view kMarkValue = "bytes";
constexpr std::array<std::string_view, 2> kSpecialTexts = {"<|begin|>", "<|end|>"};

/// The character that byte-level BPE shows a byte as, in UTF-8: printable Latin-1 bytes stand for
/// themselves, the others for the code points from U+0100 on, in order (GPT-2's map).
std::string byte_character(int byte) {
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  };
  int code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

void write_special_token(JsonWriter& json, std::int32_t id) {
  json.begin_object();
  json.member("id", id).member("content", kSpecialTexts[static_cast<std::size_t>(id - 256)]);
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"})
    json.member(flag, false);
  json.member("special", true).end_object();
}

void write_byte_level(JsonWriter& json, std::string_view key) {
  json.key(key).begin_object().member("type", "ByteLevel").member("add_prefix_space", false);
  json.member("trim_offsets", true).member("use_regex", false).end_object();
}

std::string tokenizer_json() {
  JsonWriter json(2);
  json.begin_object().member("version", "1.0");
  json.key("truncation").null().key("padding").null();
  json.key("added_tokens").begin_array();
  for (const std::int32_t id : {kBeginToken, kEndToken}) write_special_token(json, id);
  json.end_array().key("normalizer").null();
  write_byte_level(json, "pre_tokenizer");
  json.key("post_processor").null();
  write_byte_level(json, "decoder");
  json.key("model").begin_object().member("type", "BPE");
  for (const char* key :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
    json.key(key).null();
  for (const char* key : {"fuse_unk", "byte_fallback", "ignore_merges"}) json.member(key, false);
  json.key("vocab").begin_object();
  for (int byte = 0; byte < 256; ++byte) json.member(byte_character(byte), byte);
  json.end_object().key("merges").begin_array().end_array().end_object();
  json.end_object();
  return json.text() + "\n";
}

std::string tokenizer_config_json() {
  JsonWriter json(2);
  json.begin_object().member("tokenizer_class", "PreTrainedTokenizerFast");
  json.member("bos_token", kSpecialTexts[0]).member("eos_token", kSpecialTexts[1]);
  // Named so that no class of transformers adds one of its own, beyond the vocabulary.
  json.member("pad_token", kSpecialTexts[1]).member("unk_token", kSpecialTexts[1]);
  json.member("clean_up_tokenization_spaces", false).member(kMark, kMarkValue).end_object();
  return json.text() + "\n";
}

bool has_mark(const std::vector<SideFile>& side_files) {
  const SideFile* file = find_file(side_files, "tokenizer_config.json");
  if (file == nullptr) return false;
  const JsonValue config = parse_json(file->content, file->name);
  const JsonValue* mark = config.find(kMark);
  const auto* text = mark == nullptr ? nullptr : mark->as<std::string>();
  return text != nullptr && *text == kMarkValue;
}

}  // namespace

std::vector<std::int32_t> encode_bytes(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string decode_bytes(std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token >= 0 && token < 256)
      text += static_cast<char>(token);
    else if (token != kBeginToken && token != kEndToken)
      text += "\xef\xbf\xbd";
  }
  return text;
}

std::vector<SideFile> byte_tokenizer_files() {
  return {{"tokenizer.json", tokenizer_json()}, {"tokenizer_config.json", tokenizer_config_json()}};
}

std::optional<std::string> refuse_bytes(const std::vector<SideFile>& side_files, Index vocabulary) {
  if (vocabulary < kByteVocabulary)
    return fmt::format("the byte-level tokenizer needs a vocabulary of {}, the model's is {}",
                       kByteVocabulary, vocabulary);
  if (has_mark(side_files)) return std::nullopt;
  for (const std::string_view name :
       {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt"})
    if (find_file(side_files, name) != nullptr)
      return fmt::format(
          "the model has a tokenizer of its own ({}), which is not implemented; give "
          "token files (.bin) made with it",
          name);
  if (vocabulary != kByteVocabulary)
    return fmt::format(
        "the model's vocabulary of {} is not the byte-level tokenizer's ({}), and "
        "its folder names no tokenizer; give token files (.bin)",
        vocabulary, kByteVocabulary);
  return std::nullopt;
}

}  // namespace megatrain::io
