#include "parallel/cpu/cpu_communicator.h"

#include <utility>
#include <vector>

#include "core/device/cpu/cpu_device.h"
#include "parallel/cpu/rank_order_sum.h"

namespace megatrain {

namespace {

class CpuCommunicator final : public Communicator {
 public:
  CpuCommunicator(std::string name, int rank, int size,
                  std::shared_ptr<BlockingCollectives> collectives)
      : name_(std::move(name)), rank_(rank), size_(size), collectives_(std::move(collectives)) {
    require(size_ > 0 && rank_ >= 0 && rank_ < size_,
            "a communicator with a rank outside its size");
  }
  ~CpuCommunicator() override { collectives_->leave(); }
  CpuCommunicator(const CpuCommunicator&) = delete;
  CpuCommunicator& operator=(const CpuCommunicator&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view name() const override { return name_; }

  void all_gather(Stream& stream, const void* slice, void* whole, Index count,
                  DType type) override {
    if (!calls_.admit(stream, count)) return;
    const Call call = calls_.next(Collective::all_gather, count, type);
    const auto* from = static_cast<const std::byte*>(slice);
    auto* to = static_cast<std::byte*>(whole);
    const Index bytes = count * size_of(type);
    require_in_place_or_apart(from, to, bytes, rank_, size_);
    cpu_stream(stream).enqueue([=, collectives = collectives_, size = size_] {
      announce_read(from, bytes);
      announce_write(to, bytes * size);
      collectives->all_gather(call, from, to);
    });
  }

  void reduce_scatter(Stream& stream, const float* whole, float* slice, Index count) override {
    if (!calls_.admit(stream, count)) return;
    const Call call = calls_.next(Collective::reduce_scatter, count, DType::f32);
    const Index bytes = count * size_of(DType::f32);
    require_in_place_or_apart(slice, whole, bytes, rank_, size_);
    cpu_stream(stream).enqueue([=, collectives = collectives_, size = size_] {
      announce_read(whole, bytes * size);
      announce_write(slice, bytes);
      collectives->reduce_scatter(call, whole, slice);
    });
  }

  void all_reduce(Stream& stream, float* data, Index count) override {
    all_reduce(stream, data, count, DType::f32);
  }

  void all_reduce(Stream& stream, void* data, Index count, DType type) override {
    if (!calls_.admit(stream, count)) return;
    const Call call = calls_.next(Collective::all_reduce, count, type);
    cpu_stream(stream).enqueue([=, collectives = collectives_] {
      announce_write(data, count * size_of(type));
      collectives->all_reduce(call, static_cast<std::byte*>(data));
    });
  }

  void broadcast(Stream& stream, void* data, Index count, DType type, int root) override {
    require(root >= 0 && root < size_, "a broadcast from a rank that is none");
    if (!calls_.admit(stream, count)) return;
    Call call = calls_.next(Collective::broadcast, count, type);
    call.root = root;
    auto* bytes = static_cast<std::byte*>(data);
    cpu_stream(stream).enqueue([=, collectives = collectives_, reads = rank_ == root] {
      if (reads)
        announce_read(bytes, count * size_of(type));
      else
        announce_write(bytes, count * size_of(type));
      collectives->broadcast(call, bytes);
    });
  }

  void sum(std::span<double> values) override {
    if (values.empty()) return;
    sum_in_rank_order(gather(Collective::sum, values), values);
  }

  [[nodiscard]] double max(double value) override {
    return largest(gather(Collective::max, {&value, 1}));
  }

  void barrier(std::chrono::milliseconds deadline) override {
    collectives_->barrier(calls_.next(Collective::barrier, 0, DType::f32), deadline);
  }

  void check() override {}  // who waited for the stream has heard of it
  void abort(std::string_view reason) noexcept override { collectives_->abort(reason); }

 private:
  std::vector<double> gather(Collective collective, std::span<const double> values) {
    std::vector<double> all(values.size() * static_cast<std::size_t>(size_));
    collectives_->gather(calls_.next(collective, static_cast<Index>(values.size()), DType::f32),
                         values, all);
    return all;
  }

  const std::string name_;
  const int rank_;
  const int size_;
  std::shared_ptr<BlockingCollectives> collectives_;
  CallOrder calls_;
};

}  // namespace

std::unique_ptr<Communicator> make_cpu_communicator(
    std::string name, int rank, int size, std::shared_ptr<BlockingCollectives> collectives) {
  return std::make_unique<CpuCommunicator>(std::move(name), rank, size, std::move(collectives));
}

}  // namespace megatrain
