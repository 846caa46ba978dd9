#include "io/checkpoint/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <system_error>

#include "io/atomic_file.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/manifest.h"
#include "io/folder.h"

namespace megatrain::io {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step_";

/// The step of "step_00001000" or, with a suffix, of "step_00001000SUFFIX".
std::optional<Index> step_of(std::string_view name, std::string_view suffix = {}) {
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(suffix.size());
  Index step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

bool is_leftover(const std::string& name) {
  return step_of(name, kAsideSuffix) || step_of(name, kReplacedSuffix);
}

void remove_checkpoint(const fs::path& folder) {
  std::error_code error;
  // Without its marker it is no checkpoint any more, whenever the rest goes.
  fs::remove(folder / kCompleteName, error);
  if (!error) fs::remove_all(folder, error);
  if (error) throw_system_error("remove", folder, error.value());
}

}  // namespace

fs::path CheckpointFolder::of_step(Index step) const {
  return path_ / fmt::format("{}{:08}", kPrefix, step);
}

std::vector<Index> CheckpointFolder::named() const {
  std::vector<Index> steps;
  for (const std::string& name : names_in(path_))
    if (const auto step = step_of(name); step && of_step(*step).filename() == name)
      steps.push_back(*step);
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

bool CheckpointFolder::is_finished(Index step) const {
  return file_exists(of_step(step) / kCompleteName);
}

std::vector<Index> CheckpointFolder::finished() const {
  std::vector<Index> steps = named();
  std::erase_if(steps, [&](Index step) { return !is_finished(step); });
  return steps;
}

bool CheckpointFolder::is_empty() const {
  return std::ranges::all_of(names_in(path_), is_leftover);
}

void CheckpointFolder::published(Index step, const Retention& retention) const {
  write_file(path_ / "latest", of_step(step).filename().string() + "\n");
  const std::vector<Index> steps = finished();
  std::exception_ptr failure;
  for (Index i = std::max<Index>(retention.keep_last, 1); i < std::ssize(steps); ++i) {
    const Index old = steps[static_cast<std::size_t>(i)];
    const bool kept = retention.keep_every > 0 && old % retention.keep_every == 0;
    if (kept || old == step) continue;
    try {
      remove_checkpoint(of_step(old));
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

std::optional<Index> CheckpointFolder::repeated_by(Index step) const {
  const auto values_of = [&](Index of) {
    const Manifest manifest = read_manifest(of_step(of));
    std::vector<ManifestDataset> values;
    for (const ManifestShard& shard : manifest.shards)
      values.insert(values.end(), shard.datasets.begin(), shard.datasets.end());
    return values;
  };
  const std::vector<ManifestDataset> values = values_of(step);
  for (const Index earlier : finished()) {
    if (earlier >= step) continue;
    try {
      if (values_of(earlier) == values) return earlier;
    } catch (const Error&) {
      continue;  // a damaged one is no measure
    }
    return std::nullopt;
  }
  return std::nullopt;
}

std::vector<fs::path> CheckpointFolder::leftovers() const {
  std::vector<fs::path> paths;
  for (const std::string& name : names_in(path_))
    if (is_leftover(name)) paths.push_back(path_ / name);
  return paths;
}

void CheckpointFolder::remove_leftovers() const {
  for (const fs::path& path : leftovers()) remove_checkpoint(path);
}

}  // namespace megatrain::io
