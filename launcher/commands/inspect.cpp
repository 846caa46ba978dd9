#include "launcher/commands/inspect.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/checkpoint/training_record.h"
#include "io/json.h"
#include "io/tensors/statistics.h"
#include "io/text.h"
#include "launcher/console.h"

namespace megatrain::launcher {

namespace {

using Statistics = std::vector<std::optional<io::TensorStatistics>>;

struct Totals {
  Index tensors = 0, parameters = 0, bytes = 0, unreadable = 0, file_bytes = 0;
};

Totals totals_of(const io::TensorSet& set) {
  Totals totals;
  for (const io::NamedTensor& tensor : set.tensors) {
    ++totals.tensors;
    totals.bytes += tensor.bytes;
    if (!tensor.refusal.empty()) ++totals.unreadable;
    if (!tensor.is_optimizer_state()) totals.parameters += tensor.elements();
  }
  for (const io::TensorSet::File& file : set.files) totals.file_bytes += file.bytes;
  return totals;
}

/// Content of a checkpoint's training.json; nullopt: it has none.
std::optional<std::string> training_text(const io::TensorSet& set) {
  if (set.checkpoint == nullptr) return std::nullopt;
  const auto& files = set.checkpoint->manifest().files;
  if (std::ranges::find(files, io::kTrainingName, &io::ManifestFile::name) == files.end())
    return std::nullopt;
  return set.checkpoint->read_file(io::kTrainingName);
}

std::string training_source(const io::TensorSet& set) {
  return (set.path / io::kTrainingName).string();
}

std::string statistics_text(const std::optional<io::TensorStatistics>& stats) {
  if (!stats) return {};
  if (stats->finite() == 0)
    return fmt::format("{:>11} {:>11} {:>11} {:>11} {:>9} {:>9} {:>9}", "-", "-", "-", "-",
                       stats->nan, stats->infinite, stats->zero);
  return fmt::format("{:>11.4g} {:>11.4g} {:>11.4g} {:>11.4g} {:>9} {:>9} {:>9}", stats->min,
                     stats->max, stats->mean, stats->std, stats->nan, stats->infinite, stats->zero);
}

void print_training(Console& console, const io::TensorSet& set) {
  const auto text = training_text(set);
  if (!text) return console.line("training state: none, weights only");
  const io::TrainingRecord record = io::parse_training_record(*text, training_source(set));
  console.line("training state:");
  for_each_field(record.state, [&](std::string_view name, auto value) {
    console.line(fmt::format("  {:<24} {}", name, value));
  });
  console.line(fmt::format("  {} options and the numerics key: see {}", record.options.size(),
                           training_source(set)));
}

void print_tensors(Console& console, const io::TensorSet& set, const Statistics* stats) {
  std::size_t width = 6;
  for (const io::NamedTensor& tensor : set.tensors)
    width = std::max(width, io::quote(tensor.name).size() - 2);
  std::string head =
      fmt::format("{:<{}} {:<8} {:>20} {:>12}", "tensor", width, "type", "shape", "bytes");
  if (stats != nullptr)
    head += fmt::format(" {:>11} {:>11} {:>11} {:>11} {:>9} {:>9} {:>9}", "min", "max", "mean",
                        "std", "NaN", "infinite", "zero");
  console.line(head);
  for (std::size_t i = 0; i < set.tensors.size(); ++i) {
    const io::NamedTensor& tensor = set.tensors[i];
    const std::string quoted = io::quote(tensor.name);
    const std::string name = quoted.substr(1, quoted.size() - 2);
    const bool refused = !tensor.refusal.empty();
    std::string text = fmt::format(
        "{:<{}} {:<8} {:>20} {:>12}", name, width, refused ? "?" : io::name(tensor.type),
        io::shape_text(tensor.shape), refused ? "?" : format_bytes(tensor.bytes));
    if (refused)
      text += fmt::format("  not readable: {}", tensor.refusal);
    else if (stats != nullptr)
      text += fmt::format(" {}", statistics_text((*stats)[i]));
    console.line(text);
  }
}

void print(Console& console, const io::TensorSet& set, const Statistics* stats) {
  console.line(fmt::format("{} {}", io::name(set.kind), set.path.string()));
  if (set.checkpoint != nullptr) {
    console.line(fmt::format("step {}", set.checkpoint->manifest().step));
    print_training(console, set);
    for (const auto& [alias, name] : set.checkpoint->manifest().aliases)
      console.line(fmt::format("{} is tied to {}", io::quote(alias), io::quote(name)));
  }
  const Totals totals = totals_of(set);
  for (const io::TensorSet::File& file : set.files)
    console.line(fmt::format("file {}  {}", io::quote(file.name), format_bytes(file.bytes)));
  console.line("");
  print_tensors(console, set, stats);
  console.line(fmt::format("\n{} tensors, {} parameters; values {}, files {}", totals.tensors,
                           totals.parameters, format_bytes(totals.bytes),
                           format_bytes(totals.file_bytes)));
  if (totals.unreadable > 0)
    console.line(fmt::format("{} tensors are not readable", totals.unreadable));
}

void write_statistics(io::JsonWriter& json, const io::TensorStatistics& stats) {
  const bool some = stats.finite() > 0;
  json.key("statistics").begin_object();
  const auto number = [&](std::string_view name, double value) {
    some ? json.member(name, value) : json.key(name).null();
  };
  number("min", stats.min);
  number("max", stats.max);
  number("mean", stats.mean);
  number("std", stats.std);
  json.member("nan", stats.nan).member("infinite", stats.infinite).member("zero", stats.zero);
  json.end_object();
}

void write_tensor(io::JsonWriter& json, const io::NamedTensor& tensor,
                  const std::optional<io::TensorStatistics>& stats) {
  json.begin_object().member("name", tensor.name);
  if (tensor.refusal.empty())
    json.member("type", io::name(tensor.type));
  else
    json.key("type").null();
  json.key("shape").begin_array();
  for (const Index size : tensor.shape) json.value(size);
  json.end_array().member("bytes", tensor.bytes).member("file", tensor.file);
  if (!tensor.refusal.empty()) json.member("not_readable", tensor.refusal);
  if (stats) write_statistics(json, *stats);
  json.end_object();
}

std::string to_json(const io::TensorSet& set, const Statistics* stats) {
  io::JsonWriter json(1);
  json.begin_object().member("kind", io::name(set.kind)).member("path", set.path.string());
  if (set.checkpoint != nullptr) {
    json.member("step", set.checkpoint->manifest().step);
    json.key("training");
    if (const auto text = training_text(set))
      io::write(json, io::parse_json(*text, training_source(set)));
    else
      json.null();
    json.key("tied").begin_object();
    for (const auto& [alias, name] : set.checkpoint->manifest().aliases) json.member(alias, name);
    json.end_object();
  }
  json.key("files").begin_array();
  for (const io::TensorSet::File& file : set.files)
    json.begin_object().member("name", file.name).member("bytes", file.bytes).end_object();
  json.end_array().key("tensors").begin_array();
  for (std::size_t i = 0; i < set.tensors.size(); ++i)
    write_tensor(json, set.tensors[i], stats != nullptr ? (*stats)[i] : std::nullopt);
  const Totals totals = totals_of(set);
  json.end_array().key("totals").begin_object().member("tensors", totals.tensors);
  json.member("parameters", totals.parameters).member("bytes", totals.bytes);
  json.member("not_readable", totals.unreadable).end_object().end_object();
  return json.text();
}

}  // namespace

void inspect(const InspectOptions& options) {
  Console console;
  const io::TensorSet set = io::open_tensors(options.path);
  Statistics stats;
  if (options.stats) {
    ThreadPool pool(thread_count(options.threads));
    stats = io::tensor_statistics(
        set.tensors, pool, options.json ? io::Progress() : console.bytes_progress("reading"));
  }
  const Statistics* found = options.stats ? &stats : nullptr;
  if (options.json)
    console.line(to_json(set, found));
  else
    print(console, set, found);
}

}  // namespace megatrain::launcher
