#include "launcher/session/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <ranges>

#include "io/checkpoint/state_match.h"
#include "io/hf_config.h"
#include "io/text.h"

namespace megatrain::launcher {

namespace fs = std::filesystem;

namespace {
constexpr std::string_view kNotGiven = "not given";

bool contains(const std::vector<std::string>& accepted, std::string_view name) {
  return std::ranges::find(accepted, name) != accepted.end();
}

/// As it is where that is harmless, else quoted.
std::string shown(const std::string& text) {
  const std::string quoted = io::quote(text);
  return quoted == "'" + text + "'" ? text : quoted;
}
}  // namespace

void check_accepted(const std::vector<std::string>& accepted, NamedValues options,
                    const NamedValues& recorded) {
  for (const auto& option : recorded)
    if (find_value(options, option.first) == nullptr) options.push_back(option);
  for (const std::string& name : accepted)
    if (name != kNumerics && find_value(options, name) == nullptr)
      throw UserError(fmt::format(
          "--accept-change {}: a checkpoint records no such option; it may be '{}' or: {}", name,
          kNumerics, fmt::join(options | std::views::keys, ", ")));
}

struct Resume::Point {
  io::Checkpoint checkpoint;
  io::TrainingRecord record;

  explicit Point(const fs::path& folder)
      : checkpoint(folder),
        record(io::parse_training_record(checkpoint.read_file(io::kTrainingName),
                                         (folder / io::kTrainingName).string())) {
    io::check_record(checkpoint.manifest(), record, folder);
    // Written before there was a choice.
    for (const std::string_view format : io::kFormatOptions)
      if (find_value(record.options, format) == nullptr)
        record.options.emplace_back(format, name(DType::f32));
  }
};

Resume::Resume(const std::string& mode, io::CheckpointFolder folder, Say say)
    : automatic_(mode == "auto"), folder_(std::move(folder)), say_(std::move(say)) {
  if (mode == "none") return;
  if (!automatic_) {
    point_ = std::make_shared<const Point>(fs::path(mode));
    return;
  }
  if (!find(std::numeric_limits<Index>::max()) && !folder_.finished().empty())
    throw UserError(fmt::format(
        "every checkpoint of {} is damaged. Give --resume none and another --out to begin anew",
        folder_.path().string()));
}

bool Resume::find(Index before) {
  point_ = nullptr;
  for (const Index step : folder_.named()) {
    if (step >= before) continue;
    if (!folder_.is_finished(step)) {
      say_(fmt::format("passing over an unfinished checkpoint: {} has no {}",
                       folder_.of_step(step).string(), io::kCompleteName));
      continue;
    }
    try {
      auto point = std::make_shared<const Point>(folder_.of_step(step));
      if (point->record.state.step != step)
        throw io::DamagedCheckpoint(fmt::format("{} is of step {}: it goes by another's name",
                                                folder_.of_step(step).string(),
                                                point->record.state.step));
      point_ = std::move(point);
      return true;
    } catch (const io::DamagedCheckpoint& damage) {
      say_(fmt::format("passing over a damaged checkpoint: {}", damage.what()));
    }
  }
  return false;
}

const io::TrainingRecord& Resume::record() const {
  require(point_ != nullptr, "there is a checkpoint to go on from");
  return point_->record;
}

const fs::path& Resume::folder() const { return point_->checkpoint.folder(); }

void Resume::require_same_model(const ModelConfig& config) const {
  const std::string source = (folder() / io::kConfigName).string();
  if (io::parse_hf_config(point_->checkpoint.read_file(io::kConfigName), source).model != config)
    throw UserError(fmt::format("--model is another model than the one of {}", source));
}

void Resume::require_same_options(const NamedValues& options,
                                  const std::vector<std::string>& accepted) const {
  std::string differences;
  std::string names;
  const auto value_in = [](const NamedValues& list, const std::string& name) {
    const std::string* found = find_value(list, name);
    return found == nullptr ? std::string(kNotGiven) : *found;
  };
  const auto compare = [&](const std::string& name) {
    const std::string then = value_in(record().options, name);
    const std::string now = value_in(options, name);
    if (then == now) return;
    // What a file says may be anything.
    const std::string text =
        fmt::format("{}: {} in the checkpoint, {} now", shown(name), shown(then), shown(now));
    if (contains(accepted, name)) {
      say_(fmt::format("accepted: {}", text));
      return;
    }
    differences += "\n  " + text;
    names += " --accept-change " + shown(name);
  };
  for (const auto& [name, value] : record().options) compare(name);
  for (const auto& [name, value] : options)
    if (value_in(record().options, name) == kNotGiven) compare(name);
  if (!differences.empty())
    throw UserError(fmt::format(
        "{} was trained otherwise, and would not go on as it was:{}\nGive the earlier values, or "
        "accept the change by{}; --overwrite begins anew",
        folder().string(), differences, names));
}

std::optional<SavedKey> Resume::key(const std::vector<std::string>& accepted) const {
  if (contains(accepted, kNumerics)) return std::nullopt;
  SavedKey key = parse_key(record().numerics_key, folder().string(),
                           fmt::format("accept other bits by --accept-change {}", kNumerics));
  for (const std::string_view format : io::kFormatOptions)
    if (contains(accepted, format)) key.free.emplace_back(format);
  return key;
}

void Resume::load(HostStore& store, const std::vector<std::string>& accepted, ThreadPool& pool,
                  const io::Progress& progress, io::Peers& peers) {
  const auto other_moments = contains(accepted, io::kMomentsOption) ? io::OtherMoments::converted
                                                                    : io::OtherMoments::refused;
  for (;;) {
    try {
      io::load_state(point_->checkpoint, store, io::LoadParts::all, pool, progress, peers,
                     other_moments);
      return;
    } catch (const io::DamagedCheckpoint& damage) {
      if (!automatic_) throw;
      say_(fmt::format("passing over a damaged checkpoint: {}", damage.what()));
      const io::TrainingRecord damaged = record();
      if (!find(damaged.state.step)) throw;
      if (record().options != damaged.options || record().numerics_key != damaged.numerics_key)
        throw UserError(fmt::format(
            "{}\nThe one before it, {}, was trained with other options: name it by --resume to go "
            "on from there",
            damage.what(), folder().string()));
    }
  }
}

}  // namespace megatrain::launcher
