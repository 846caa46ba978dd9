#pragma once
/// @file
/// What a run goes on from: a checkpoint of its own folder, or one that --resume names.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/checkpoint/state_load.h"
#include "io/checkpoint/training_record.h"
#include "launcher/options/option.h"
#include "launcher/session/numerics_key.h"

namespace megatrain::launcher {

/// Called with a line for the user.
using Say = std::function<void(std::string_view)>;

class Resume {
 public:
  /// Finds the checkpoint: with `mode` "none" none, with "auto" the newest of `folder` that is not
  /// damaged (what is passed over is said), else the folder that `mode` names.
  /// @throws UserError when the one that was named cannot be used, or every one is damaged
  Resume(const std::string& mode, io::CheckpointFolder folder, Say say);

  /// Whether there is something to go on from.
  explicit operator bool() const { return point_ != nullptr; }
  [[nodiscard]] const io::TrainingRecord& record() const;
  [[nodiscard]] const std::filesystem::path& folder() const;

  /// Refuses another model than the checkpoint's. @throws UserError
  void require_same_model(const ModelConfig& config) const;
  /// Refuses options that differ from those of the checkpoint, unless `accepted` names them; says
  /// which differ all the same. @throws UserError listing the differences
  void require_same_options(const NamedValues& options,
                            const std::vector<std::string>& accepted) const;
  /// The numerics key that the run must keep, but for what `accepted` names; nullopt when that
  /// holds "numerics".
  [[nodiscard]] std::optional<SavedKey> key(const std::vector<std::string>& accepted) const;
  /// Reads the state into the store. One that turns out to be damaged is passed over for an older
  /// one of the same options and key, where `mode` allows. @throws as io::load_state
  /// @param accepted  with "moments", those of another type are converted
  /// @param peers     the ranks of the run, which load together
  void load(HostStore& store, const std::vector<std::string>& accepted, ThreadPool& pool,
            const io::Progress& progress, io::Peers& peers = io::Peers::alone());

 private:
  struct Point;
  bool find(Index before);

  bool automatic_ = false;
  io::CheckpointFolder folder_;
  Say say_;
  std::shared_ptr<const Point> point_;
};

/// What --accept-change may name besides decisive options: the numerics key.
inline constexpr std::string_view kNumerics = "numerics";
/// Names in --accept-change that neither this run's options nor the checkpoint's have are mistakes.
/// @throws UserError
void check_accepted(const std::vector<std::string>& accepted, NamedValues options,
                    const NamedValues& recorded);

}  // namespace megatrain::launcher
