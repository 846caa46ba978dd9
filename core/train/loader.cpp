#include "core/train/loader.h"

namespace megatrain {

Loader::Loader(const Choices& choices, const ModelConfig& config, const TokenSource& source,
               std::uint64_t seed, Index first_sample, const DataShare& share)
    : choices_(choices),
      config_(config),
      source_(source),
      seed_(seed),
      share_(share),
      drawn_(first_sample),
      ahead_(prepare(first_sample)) {}

Loader::~Loader() {
  if (ahead_.valid()) ahead_.wait();
}

std::future<Batch> Loader::prepare(Index first_sample) const {
  return std::async(std::launch::async, [this, first_sample] {
    return training_batch(choices_, config_, source_, seed_, first_sample, share_);
  });
}

Batch Loader::next() {
  Batch batch = ahead_.get();
  drawn_ += choices_.step_sequences() * share_.ranks;
  ahead_ = prepare(drawn_);
  return batch;
}

}  // namespace megatrain
