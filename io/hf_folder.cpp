#include "io/hf_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "io/byte_tokenizer.h"
#include "io/file.h"
#include "io/text.h"

namespace megatrain::io {

namespace fs = std::filesystem;

namespace {

constexpr Index kLargestConfig = Index{16} << 20;
constexpr Index kLargestSideFile = Index{256} << 20;

constexpr std::array<std::string_view, 16> kSideFiles = {"generation_config.json",
                                                         "tokenizer.json",
                                                         "tokenizer_config.json",
                                                         "special_tokens_map.json",
                                                         "added_tokens.json",
                                                         "vocab.json",
                                                         "merges.txt",
                                                         "tokenizer.model",
                                                         "chat_template.jinja",
                                                         "chat_template.json",
                                                         "LICENSE",
                                                         "LICENSE.txt",
                                                         "LICENSE.md",
                                                         "NOTICE",
                                                         "NOTICE.txt",
                                                         "USE_POLICY.md"};

}  // namespace

HfFolder::HfFolder(fs::path folder) : path_(std::move(folder)) {
  const fs::path config_path = path_ / kConfigName;
  if (!file_exists(config_path))
    throw UserError(fmt::format("{} is no model folder: it has no config.json{}",
                                quote(path_.string()), hint_at_model(path_)));
  side_files_.push_back({std::string(kConfigName), read_whole_file(config_path, kLargestConfig)});
  config_ = parse_hf_config(side_files_.front().content, config_path.string());
  for (const std::string_view name : kSideFiles)
    if (file_exists(path_ / name))
      side_files_.push_back({std::string(name), read_whole_file(path_ / name, kLargestSideFile)});
}

std::vector<SideFile> preset_side_files(const ModelConfig& config, bool bytes) {
  SpecialTokens tokens;
  if (bytes) tokens = {kBeginToken, kEndToken};
  std::vector<SideFile> files = {
      {std::string(kConfigName), make_hf_config(config, DType::bf16, tokens)},
      {"generation_config.json", make_generation_config(tokens)}};
  if (bytes)
    for (SideFile& file : byte_tokenizer_files()) files.push_back(std::move(file));
  return files;
}

bool is_side_file(std::string_view name) {
  return name == kConfigName || std::ranges::find(kSideFiles, name) != kSideFiles.end();
}

const SideFile* find_file(const std::vector<SideFile>& files, std::string_view name) {
  for (const SideFile& file : files)
    if (file.name == name) return &file;
  return nullptr;
}

std::string hint_at_model(const fs::path& folder) {
  const fs::path model = folder / "model";
  if (!file_exists(model / kConfigName)) return "";
  return fmt::format("; it looks like the folder of a run, whose model is in {}",
                     quote(model.string()));
}

}  // namespace megatrain::io
