#include "parallel/conformance/recording_communicator.h"

#include <utility>

namespace megatrain::conformance {

namespace {

class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(std::unique_ptr<Communicator> inner, std::vector<Call>& calls)
      : inner_(std::move(inner)), calls_(calls) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }

  void all_gather(Stream& stream, const void* slice, void* whole, Index count,
                  DType type) override {
    note({.collective = Collective::all_gather, .count = count, .type = type});
    inner_->all_gather(stream, slice, whole, count, type);
  }
  void reduce_scatter(Stream& stream, const float* whole, float* slice, Index count) override {
    note({.collective = Collective::reduce_scatter, .count = count});
    inner_->reduce_scatter(stream, whole, slice, count);
  }
  void all_reduce(Stream& stream, float* data, Index count) override {
    note({.collective = Collective::all_reduce, .count = count});
    inner_->all_reduce(stream, data, count);
  }
  void all_reduce(Stream& stream, void* data, Index count, DType type) override {
    note({.collective = Collective::all_reduce, .count = count, .type = type});
    inner_->all_reduce(stream, data, count, type);
  }
  void broadcast(Stream& stream, void* data, Index count, DType type, int root) override {
    note({.collective = Collective::broadcast, .count = count, .type = type, .root = root});
    inner_->broadcast(stream, data, count, type, root);
  }
  void sum(std::span<double> values) override {
    note({.collective = Collective::sum, .count = static_cast<Index>(values.size())});
    inner_->sum(values);
  }
  [[nodiscard]] double max(double value) override {
    note({.collective = Collective::max, .count = 1});
    return inner_->max(value);
  }
  void barrier(std::chrono::milliseconds deadline) override {
    note({.collective = Collective::barrier});
    inner_->barrier(deadline);
  }
  void check() override { inner_->check(); }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }

 private:
  void note(Call call) {
    call.number = calls_.size() + 1;
    calls_.push_back(call);
  }

  std::unique_ptr<Communicator> inner_;
  std::vector<Call>& calls_;
};

}  // namespace

std::unique_ptr<Communicator> record_calls(std::unique_ptr<Communicator> inner,
                                           std::vector<Call>& calls) {
  return std::make_unique<RecordingCommunicator>(std::move(inner), calls);
}

}  // namespace megatrain::conformance
