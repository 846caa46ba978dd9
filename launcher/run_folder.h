#pragma once
/// @file
/// The folder that a training run writes.

#include <filesystem>

#include "io/file.h"

namespace megatrain::launcher {

/// The names in it.
struct RunFolder {
  std::filesystem::path path;
  [[nodiscard]] std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  [[nodiscard]] std::filesystem::path config() const { return path / "config.toml"; }
  [[nodiscard]] std::filesystem::path key() const { return path / "numerics.key"; }
  [[nodiscard]] std::filesystem::path model() const { return path / "model"; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  /// Whether something lies inside it.
  [[nodiscard]] bool holds(const std::filesystem::path& other) const;
};

/// Refuses a folder that holds an earlier run, unless it is to be overwritten, or that lies where
/// nothing can be written. Changes nothing.
/// @param source  what the run starts from, if it is a folder: it must not be overwritten either
/// @throws UserError
void check_run_folder(const RunFolder& folder, bool overwrite, const std::filesystem::path& source);

/// Refuses a run whose model would not fit the disk at its end; what an earlier run left in the
/// folder counts as free. Changes nothing.
/// @param bytes  of the model
/// @throws UserError
void require_disk_space(const RunFolder& folder, std::int64_t bytes);

/// Whether an earlier run, if there was one, was ended before it saved anything: nothing is lost
/// when it is replaced. @throws UserError when that cannot be seen
bool died_before_saving(const RunFolder& folder);

/// Makes the folder and removes what an earlier run left, once it is sure that there is room.
/// @param bytes  of the model
/// @param keeps  the earlier run is to go on: nothing is removed
/// @returns the folder's lock: no other run may write there while it lives
/// @throws UserError before anything is removed, as require_disk_space does, and when another run
///         is at work there
io::FileDescriptor begin_run_folder(const RunFolder& folder, std::int64_t bytes, bool keeps);

}  // namespace megatrain::launcher
