#include "io/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/text.h"
#include "io/token_stream.h"

namespace megatrain::io {

namespace fs = std::filesystem;

namespace {

/// Streams one after another, cut into samples.
struct Samples {
  std::vector<std::unique_ptr<TokenStream>> streams;
  std::vector<Index> begins;  ///< number of each stream's first sample
  Index count = 0;
};

/// A range of samples.
class SampleRange : public TokenSource {
 public:
  SampleRange(std::shared_ptr<const Samples> samples, Index sequence, Index first, Index count)
      : samples_(std::move(samples)), sequence_(sequence), first_(first), count_(count) {}

  [[nodiscard]] Index samples() const override { return count_; }
  [[nodiscard]] Index sequence() const override { return sequence_; }

  void sample(Index index, std::span<std::int32_t> tokens) const override {
    require(index >= 0 && index < count_ && static_cast<Index>(tokens.size()) == sequence_ + 1,
            "TokenSource::sample: no such sample, or a buffer of the wrong size");
    const Index number = first_ + index;
    const auto after = std::upper_bound(samples_->begins.begin(), samples_->begins.end(), number);
    const auto stream = static_cast<std::size_t>(after - samples_->begins.begin() - 1);
    samples_->streams[stream]->read((number - samples_->begins[stream]) * sequence_, tokens);
  }

 private:
  std::shared_ptr<const Samples> samples_;
  Index sequence_, first_, count_;
};

enum class Kind { text, tokens };

Kind kind_of(const fs::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".txt" || extension == ".jsonl") return Kind::text;
  if (extension == ".bin") return Kind::tokens;
  const bool packed = extension == ".gz" || extension == ".zst" || extension == ".xz" ||
                      extension == ".bz2" || extension == ".zip";
  throw UserError(
      fmt::format("{}: {}; data files are .txt, .jsonl ({{\"text\": ...}} lines) or "
                  ".bin (tokens of llm.c or nanoGPT)",
                  quote(path.string()),
                  packed ? "compressed files must be unpacked first" : "unknown kind of file"));
}

std::shared_ptr<Samples> open_samples(const std::vector<fs::path>& paths,
                                      const DatasetOptions& options,
                                      std::vector<std::string>& warnings) {
  auto samples = std::make_shared<Samples>();
  std::vector<fs::path> texts;
  for (const fs::path& path : paths) {
    if (kind_of(path) == Kind::tokens) {
      samples->streams.push_back(open_token_file(path, options.vocabulary));
      continue;
    }
    if (options.text_refusal)
      throw UserError(
          fmt::format("{} is text, but {}", quote(path.string()), *options.text_refusal));
    texts.push_back(path);
  }
  if (!texts.empty()) samples->streams.push_back(read_text_files(texts, warnings));

  Index tokens = 0;
  for (const auto& stream : samples->streams) {
    samples->begins.push_back(samples->count);
    samples->count += std::max<Index>(stream->tokens() - 1, 0) / options.sequence;
    tokens += stream->tokens();
  }
  if (samples->count == 0)
    throw UserError(
        fmt::format("{}{} hold{} {} tokens, too few for one sample of {}: give more "
                    "data or a shorter --seq-len",
                    quote(paths.front().string()), paths.size() > 1 ? ", ..." : "",
                    paths.size() > 1 ? "" : "s", tokens, options.sequence + 1));
  return samples;
}

}  // namespace

Dataset open_dataset(const DatasetOptions& options) {
  if (options.sequence < 1)
    throw UserError(
        fmt::format("a sequence of {} tokens; it must be at least 1", options.sequence));
  if (options.train.empty() && options.train_required)
    throw UserError("no data files are given (--data)");
  const double fraction = options.validation_fraction;
  if (!(fraction >= 0 && fraction < 1))
    throw UserError(
        fmt::format("--val-fraction is {}; it must be at least 0 and below 1", fraction));
  if (fraction > 0 && !options.validation.empty())
    throw UserError("--val-data and --val-fraction are two ways to hold data out; choose one");

  Dataset dataset;
  if (!options.validation.empty()) {
    const auto samples = open_samples(options.validation, options, dataset.warnings);
    dataset.validation =
        std::make_unique<SampleRange>(samples, options.sequence, 0, samples->count);
    dataset.validation_tokens = samples->count * options.sequence;
  }
  if (options.train.empty()) return dataset;

  const auto train = open_samples(options.train, options, dataset.warnings);
  Index held_out = 0;
  if (fraction > 0) {
    held_out = std::max<Index>(std::llround(fraction * static_cast<double>(train->count)), 1);
    if (held_out >= train->count)
      throw UserError(
          fmt::format("the data holds {} samples of {} tokens; --val-fraction {} leaves none to "
                      "train on",
                      train->count, options.sequence + 1, fraction));
  }
  const Index kept = train->count - held_out;
  dataset.train = std::make_unique<SampleRange>(train, options.sequence, 0, kept);
  dataset.train_tokens = kept * options.sequence;
  if (held_out > 0) {
    dataset.validation = std::make_unique<SampleRange>(train, options.sequence, kept, held_out);
    dataset.validation_tokens = held_out * options.sequence;
  }
  return dataset;
}

}  // namespace megatrain::io
