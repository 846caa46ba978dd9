#pragma once
/// @file
/// Saves the checkpoints of a training run.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/train/saver.h"
#include "io/checkpoint/background_save.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/checkpoint/training_record.h"
#include "launcher/console.h"
#include "launcher/options/run_options.h"

namespace megatrain::launcher {

/// Memory for blocks on their way to the disk: what --save-buffer says, else what the machine has
/// left, the whole state at most; and never less than it takes to keep a disk busy.
Index save_blocks(const CheckpointOptions& options, Index available, const Model& model,
                  DType moments);

/// The ranks that save together, and whether this one has a share of the writing.
struct SaveShare {
  io::Peers& peers = io::Peers::alone();
  bool writes = true;
};

/// Which checkpoints the options keep.
io::Retention retention(const CheckpointOptions& options);

/// How long a save takes, and how much of it a step would wait for.
struct SaveEstimate {
  Index bytes = 0;
  double seconds = 0;  ///< until it is on disk
  double exposed = 0;  ///< what neither the buffer nor one step hides
};
/// @param buffer          bytes of the blocks
/// @param disk            bytes/s
/// @param step_seconds    of the plan
SaveEstimate estimate_save(Index state_bytes, Index buffer, double disk, double step_seconds);

class CheckpointSaver final : public Saver {
 public:
  /// @param record   options and key of the run; its state is filled in
  /// @param files    stored with every checkpoint besides the training record
  /// @param wanted   whether a signal asks for a checkpoint at the end of the run
  /// @param held     Engine::seconds_held()
  /// @param saved_step  the step that the run goes on from, whose checkpoint is there; -1: none
  /// @param share       all ranks make the same calls
  CheckpointSaver(io::CheckpointFolder folder, const CheckpointOptions& options,
                  const HostStore& store, Index blocks, io::TrainingRecord record,
                  std::vector<io::SideFile> files, Console& console, std::function<bool()> wanted,
                  std::function<double()> held, Index saved_step, const SaveShare& share = {});

  /// Due every --save-every steps, at the end of a run that saves, and when a signal asks. The save
  /// before must be through: training waits for it here.
  /// @throws what a save failed for, when --save-failure is stop
  StateReader* begin(const TrainState& state, bool ending) override;
  /// Whether a save is under way, as all ranks see it.
  [[nodiscard]] bool is_saving() const { return save_ != nullptr; }
  /// Waits for the save under way. @returns whether the newest save that was asked for is there
  bool finish();

 private:
  [[nodiscard]] bool is_due(const TrainState& state, bool ending) const;
  /// Reports the save under way once it is done, or waits for it where `wait`. Ranks do so at the
  /// same boundary: a failure may end training.
  void settle(bool wait);
  [[nodiscard]] bool done_on_all() const;
  void report_failure(const Error& why);

  io::CheckpointFolder folder_;
  CheckpointOptions options_;
  const HostStore& store_;
  io::BlockPool blocks_;
  io::TrainingRecord record_;
  std::vector<io::SideFile> files_;
  Console& console_;
  std::function<bool()> wanted_;
  std::function<double()> held_;
  double held_before_ = 0;  ///< when the save began
  Index saved_step_;
  SaveShare share_;
  std::unique_ptr<io::BackgroundSave> save_;
  bool failed_ = false;
};

}  // namespace megatrain::launcher
