#pragma once
/// @file
/// The folder that a training run writes.

#include <filesystem>

namespace megatrain::launcher {

/// The names in it.
struct RunFolder {
  std::filesystem::path path;
  [[nodiscard]] std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  [[nodiscard]] std::filesystem::path config() const { return path / "config.toml"; }
  [[nodiscard]] std::filesystem::path key() const { return path / "numerics.key"; }
  [[nodiscard]] std::filesystem::path model() const { return path / "model"; }
};

/// Refuses a folder that holds an earlier run, unless it is to be overwritten, or that lies where
/// nothing can be written. Changes nothing.
/// @param model  what the run starts from: it must not be overwritten either
/// @throws UserError
void check_run_folder(const RunFolder& folder, bool overwrite, const std::filesystem::path& model);

/// Refuses a run whose model would not fit the disk at its end; what an earlier run left in the
/// folder counts as free. Changes nothing.
/// @param bytes  of the model
/// @throws UserError
void require_disk_space(const RunFolder& folder, std::int64_t bytes);

/// Makes the folder and removes what an earlier run left, once it is sure that there is room.
/// @param bytes  of the model
/// @throws UserError before anything is removed, as require_disk_space does
void begin_run_folder(const RunFolder& folder, std::int64_t bytes);

}  // namespace megatrain::launcher
