#pragma once
/// @file
/// A Hugging Face model folder: config.json, the small files beside it, and the weights.

#include <filesystem>
#include <string>
#include <vector>

#include "core/store/host_store.h"
#include "io/checkpoint/peers.h"
#include "io/hf_config.h"
#include "io/pieces.h"

namespace megatrain::io {

/// A small file of a model folder, held in memory: the folder may be gone when training ends.
struct SideFile {
  std::string name;
  std::string content;
};

/// The files of an opened folder, ready to read. Cheap: no weights are read here.
class HfFolder {
 public:
  /// Reads config.json and the side files (tokenizer, generation config, chat template, licence).
  /// @throws UserError naming file and key
  explicit HfFolder(std::filesystem::path folder);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const HfConfig& config() const { return config_; }
  /// config.json among them.
  [[nodiscard]] const std::vector<SideFile>& side_files() const { return side_files_; }

 private:
  std::filesystem::path path_;
  HfConfig config_;
  std::vector<SideFile> side_files_;
};

/// The side files of a model that starts from a preset: config.json, generation_config.json and,
/// with `bytes`, the byte-level tokenizer. @throws UserError as make_hf_config
std::vector<SideFile> preset_side_files(const ModelConfig& config, bool bytes);

/// Whether a file of that name is one that goes with a model: config.json or a side file.
bool is_side_file(std::string_view name);

/// nullptr when there is no such file.
const SideFile* find_file(const std::vector<SideFile>& files, std::string_view name);

/// Reads what the store holds of every parameter of `store.model()` from the folder's safetensors
/// (single or sharded; F32, BF16 or F16). All names, shapes and types are checked before anything
/// is read. The other name of a tied tensor may be in the files too if it holds the same values;
/// buffers that are no weights are skipped. On an error the store's content is undefined.
/// @throws UserError naming file, tensor, expected and actual
void load_weights(const std::filesystem::path& folder, HostStore& store, ThreadPool& pool,
                  const Progress& progress = {});

struct ExportOptions {
  std::filesystem::path folder = {};  ///< appears whole or not at all
  DType type = DType::bf16;           ///< of the weights written
  Index shard_bytes = 5'000'000'000;  ///< more weights than this are cut into several files
  bool replace = false;               ///< an existing folder gives way
  Peers* peers = &Peers::alone();     ///< who write it together
  bool writes = true;  ///< this rank what its store holds; every element has one such rank
};

/// Writes a folder that AutoModelForCausalLM opens: the store's masters (pending updates must be
/// flushed), config.json of `side_files` with the new dtype, the other side files as they are. Only
/// pieces of the model are in memory. Several ranks write together what one would. @throws
/// UserError, when the disk is full among others; on all ranks, and then nothing is left behind
void export_model(const HostStore& store, const std::vector<SideFile>& side_files,
                  const ExportOptions& options, ThreadPool& pool, const Progress& progress = {});

/// "; it looks like ..., whose model is in 'RUN/model'" where `folder` is that of a run, for
/// messages that refuse it; else empty.
std::string hint_at_model(const std::filesystem::path& folder);

}  // namespace megatrain::io
