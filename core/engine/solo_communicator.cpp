#include "core/engine/solo_communicator.h"

#include <mutex>
#include <optional>
#include <utility>

namespace megatrain {

namespace {

class SoloCommunicator final : public Communicator {
 public:
  explicit SoloCommunicator(std::string name) : name_(std::move(name)) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::string_view name() const override { return name_; }

  void all_gather(Stream& stream, const void* slice, void* whole, Index count,
                  DType type) override {
    check();
    if (slice != whole) stream.copy(whole, slice, count * size_of(type));
  }
  void reduce_scatter(Stream& stream, const float* whole, float* slice, Index count) override {
    check();
    if (slice != whole) stream.copy(slice, whole, count * size_of(DType::f32));
  }
  void all_reduce(Stream& /*stream*/, float* /*data*/, Index /*count*/) override { check(); }
  void all_reduce(Stream& /*stream*/, void* /*data*/, Index /*count*/, DType /*type*/) override {
    check();
  }
  void broadcast(Stream& /*stream*/, void* /*data*/, Index /*count*/, DType /*type*/,
                 int root) override {
    require(root == 0, "a broadcast from a rank that is none");
    check();
  }
  void sum(std::span<double> /*values*/) override { check(); }
  [[nodiscard]] double max(double value) override {
    check();
    return value;
  }
  void barrier(std::chrono::milliseconds /*deadline*/) override { check(); }

  void check() override {
    const std::lock_guard lock(mutex_);
    if (reason_) throw PeerError("'" + name_ + "' was ended: " + *reason_, {0});
  }

  void abort(std::string_view reason) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!reason_) reason_ = reason;
  }

 private:
  const std::string name_;
  std::mutex mutex_;
  std::optional<std::string> reason_;  // why it was aborted
};

}  // namespace

std::unique_ptr<Communicator> make_solo_communicator(std::string name) {
  return std::make_unique<SoloCommunicator>(std::move(name));
}

}  // namespace megatrain
