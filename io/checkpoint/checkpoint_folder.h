#pragma once
/// @file
/// The checkpoints of a run: OUT/checkpoints/step_00001000 and its like.

#include <filesystem>
#include <optional>
#include <vector>

#include "core/base/types.h"

namespace megatrain::io {

/// Which checkpoints stay when a new one is there.
struct Retention {
  Index keep_last = 2;   ///< the newest ones, at least 1
  Index keep_every = 0;  ///< also those of every so many steps; 0: none
};

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path path) : path_(std::move(path)) {}

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// PATH/step_00001000.
  [[nodiscard]] std::filesystem::path of_step(Index step) const;
  /// Steps whose checkpoints are there by name, finished or not, newest first.
  /// @throws UserError when the folder is there but cannot be read
  [[nodiscard]] std::vector<Index> named() const;
  /// Whether the step's checkpoint carries the marker of a finished one.
  [[nodiscard]] bool is_finished(Index step) const;
  /// The named steps whose checkpoints are finished, newest first. @throws UserError as named()
  [[nodiscard]] std::vector<Index> finished() const;
  /// Whether there is nothing in it but what killed processes left half-written, or no such folder.
  /// @throws UserError as named()
  [[nodiscard]] bool is_empty() const;
  /// Names the newest checkpoint in PATH/latest, for people and scripts, and removes the finished
  /// ones that are not to be kept, as many as can be. @throws UserError, Error
  void published(Index step, const Retention& retention) const;
  /// The newest checkpoint of an earlier step, if by the manifests every value in it is that of
  /// `step`'s.
  /// Training changes every weight, so this tells of a save that wrote old bytes, or of steps that
  /// were all skipped. @throws UserError, Error when the manifest of `step` cannot be read
  [[nodiscard]] std::optional<Index> repeated_by(Index step) const;
  /// What killed processes left half-written. @throws UserError as named()
  [[nodiscard]] std::vector<std::filesystem::path> leftovers() const;
  /// Removes what killed processes left half-written. No save may be under way.
  void remove_leftovers() const;

 private:
  std::filesystem::path path_;
};

}  // namespace megatrain::io
