#include "launcher/session/checkpoint_saver.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/session/failures.h"

namespace megatrain::launcher {

namespace {

/// Blocks without which writers would wait for copies: 128 MiB.
constexpr Index kFewestBlocks = 8;
/// Threads that copy a unit out. The first time a buffer is filled the system clears its pages, at
/// 3 GB/s a thread; more threads would take memory bandwidth that the optimizer wants.
constexpr int kCopyThreads = 8;

std::string format_rate(Index bytes, double seconds) {
  return fmt::format("{}/s",
                     format_bytes(static_cast<Index>(static_cast<double>(bytes) / seconds)));
}

}  // namespace

Index save_blocks(const CheckpointOptions& options, Index available, const Model& model,
                  DType moments) {
  // A margin for what else runs here, the page cache among it.
  const Index blocks =
      options.save_buffer
          ? options.save_buffer->bytes / io::kBlockBytes
          : std::min((available - available / 10 - (Index{1} << 30)) / io::kBlockBytes,
                     io::blocks_of_state(model, moments));
  return std::max(blocks, kFewestBlocks);
}

io::Retention retention(const CheckpointOptions& options) {
  return {.keep_last = options.keep_last, .keep_every = options.keep_every};
}

SaveEstimate estimate_save(Index state_bytes, Index buffer, double disk, double step_seconds) {
  // A unit must be out of the store by its next update, a step later; what the buffer takes is.
  const auto held = static_cast<double>(std::max<Index>(state_bytes - buffer, 0));
  return {state_bytes, static_cast<double>(state_bytes) / disk,
          std::max(held / disk - step_seconds, 0.0)};
}

CheckpointSaver::CheckpointSaver(io::CheckpointFolder folder, const CheckpointOptions& options,
                                 const HostStore& store, Index blocks, io::TrainingRecord record,
                                 std::vector<io::SideFile> files, Console& console,
                                 std::function<bool()> wanted, std::function<double()> held,
                                 Index saved_step, const SaveShare& share)
    : folder_(std::move(folder)),
      options_(options),
      store_(store),
      blocks_(blocks),
      record_(std::move(record)),
      files_(std::move(files)),
      console_(console),
      wanted_(std::move(wanted)),
      held_(std::move(held)),
      saved_step_(saved_step),
      share_(share) {}

bool CheckpointSaver::is_due(const TrainState& state, bool ending) const {
  const bool saves = options_.save_every > 0;
  return (saves && state.step % options_.save_every == 0) || (ending && (saves || wanted_()));
}

StateReader* CheckpointSaver::begin(const TrainState& state, bool ending) {
  const bool due = is_due(state, ending) && state.step != saved_step_;
  settle(due);
  if (!due) return nullptr;
  record_.state = state;
  held_before_ = held_();
  io::SaveOptions save{.folder = folder_.of_step(state.step),
                       .step = state.step,
                       .files = files_,
                       .read_back = options_.verify_saves,
                       .peers = &share_.peers,
                       .writes = share_.writes};
  save.published = [this, step = state.step] {
    // Before earlier ones are retired.
    const std::optional<Index> repeated = folder_.repeated_by(step);
    folder_.published(step, retention(options_));
    if (repeated)
      throw Error(
          fmt::format("every value is that of step {}: nothing was learned in between (steps "
                      "skipped, or a learning rate of 0), or the save wrote old values",
                      *repeated));
  };
  save.files.push_back({std::string(io::kTrainingName), io::to_json(record_)});
  if (options_.shard_size) save.shard_bytes = options_.shard_size->bytes;
  if (options_.save_rate) save.bytes_per_second = options_.save_rate->bytes;
  try {
    save_ = std::make_unique<io::BackgroundSave>(store_, std::move(save), blocks_, kCopyThreads);
    saved_step_ = state.step;
  } catch (const Error& error) {
    report_failure(error);
  }
  return save_.get();
}

bool CheckpointSaver::done_on_all() const {
  const std::string_view mine = save_->done() ? "done" : "";
  return std::ranges::none_of(share_.peers.exchange("save under way", mine), &std::string::empty);
}

void CheckpointSaver::settle(bool wait) {
  if (save_ == nullptr || (!wait && !done_on_all())) return;
  const std::unique_ptr<io::BackgroundSave> save = std::move(save_);
  try {
    const io::SaveReport report = save->wait();
    failed_ = false;
    if (!report.remark.empty())
      console_.warning(fmt::format("the checkpoint is saved, but: {}", report.remark));
    console_.line(fmt::format("checkpoint {}: {} in {}, {}; updates waited {} for it",
                              save->options().folder.filename().string(),
                              format_bytes(report.bytes), format_seconds(report.seconds),
                              format_rate(report.bytes, report.seconds),
                              format_seconds(held_() - held_before_)));
  } catch (const Error& error) {
    report_failure(error);
  }
}

void CheckpointSaver::report_failure(const Error& why) {
  failed_ = true;
  const std::string_view fails = "a checkpoint could not be saved";
  const std::string_view rest = "earlier ones are as they were";
  // A full disk is to be mended; a rank that was lost is not, and launch starts all again.
  if (options_.save_failure == "stop")
    throw_like(why, fmt::format("{}; {}: {}", fails, rest, why.what()));
  console_.warning(fmt::format("{}; training goes on, and {}: {}", fails, rest, why.what()));
}

bool CheckpointSaver::finish() {
  settle(/*wait=*/true);
  return !failed_;
}

}  // namespace megatrain::launcher
