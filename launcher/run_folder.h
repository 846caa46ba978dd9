#pragma once
/// @file
/// The folder that a training run writes.

#include <filesystem>
#include <string>
#include <vector>

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

/// A run's hold on its folder: no other may write there while it lives.
class FolderHold {
 public:
  /// Locks the folder if it is there. Changes nothing.
  /// @throws UserError when another run is at work there, or when nothing can be written there
  explicit FolderHold(const RunFolder& folder);
  /// Removes what make() made, where nothing came into it.
  ~FolderHold();
  FolderHold(const FolderHold&) = delete;
  FolderHold& operator=(const FolderHold&) = delete;

  /// Makes the folder and locks it, where it was not there.
  /// @returns whether it does so: what is in the folder now, came while nobody held it
  /// @throws UserError as the constructor
  bool make();

 private:
  /// Does nothing where the folder is not there.
  void lock();

  std::string name_;  ///< as --out has it
  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  ///< outermost first
  io::FileDescriptor lock_;
};

/// Refuses a folder that holds an earlier run, unless it is to be overwritten. Changes nothing.
/// @param source  what the run starts from, if it is a folder: it must not be overwritten either
/// @throws UserError
void check_run_folder(const RunFolder& folder, bool overwrite, const std::filesystem::path& source);

/// Refuses a run whose model would not fit the disk at its end; what an earlier run left in the
/// folder counts as free. Changes nothing.
/// @param bytes  of the model
/// @throws UserError
void require_disk_space(const RunFolder& folder, std::int64_t bytes);

/// Refuses a run on whose disk not even one checkpoint fits: every save would fail. What goes
/// before the first is written counts as free. Changes nothing.
/// @param bytes   of a checkpoint
/// @param clears  what an earlier run left goes, its finished checkpoints among it
/// @throws UserError
void require_checkpoint_space(const RunFolder& folder, std::int64_t bytes, bool clears);

/// Whether an earlier run, if there was one, was ended before it saved anything: nothing is lost
/// when it is replaced. @throws UserError when that cannot be seen
bool died_before_saving(const RunFolder& folder);

/// Removes what an earlier run left, once it is sure that there is room. The folder is held.
/// @param bytes  of the model
/// @throws UserError before anything is removed, as require_disk_space does
void clear_run_folder(const RunFolder& folder, std::int64_t bytes);

}  // namespace megatrain::launcher
