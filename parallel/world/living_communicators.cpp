#include "parallel/world/living_communicators.h"

#include <utility>

namespace megatrain::parallel {

class LivingCommunicators::Member final : public Communicator {
 public:
  Member(std::shared_ptr<LivingCommunicators> list, std::unique_ptr<Communicator> inner)
      : list_(std::move(list)), inner_(std::move(inner)) {
    const std::lock_guard lock(list_->mutex_);
    list_->members_.insert(inner_.get());
    if (list_->trouble_) inner_->abort(list_->trouble_->reason);
  }
  ~Member() override {
    const std::lock_guard lock(list_->mutex_);
    list_->members_.erase(inner_.get());
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  void all_gather(Stream& stream, const void* slice, void* whole, Index count,
                  DType type) override {
    inner_->all_gather(stream, slice, whole, count, type);
  }
  void reduce_scatter(Stream& stream, const float* whole, float* slice, Index count) override {
    inner_->reduce_scatter(stream, whole, slice, count);
  }
  void all_reduce(Stream& stream, float* data, Index count) override {
    inner_->all_reduce(stream, data, count);
  }
  void all_reduce(Stream& stream, void* data, Index count, DType type) override {
    inner_->all_reduce(stream, data, count, type);
  }
  void broadcast(Stream& stream, void* data, Index count, DType type, int root) override {
    inner_->broadcast(stream, data, count, type, root);
  }
  void sum(std::span<double> values) override { inner_->sum(values); }
  [[nodiscard]] double max(double value) override { return inner_->max(value); }
  void barrier(std::chrono::milliseconds deadline) override { inner_->barrier(deadline); }
  void check() override { inner_->check(); }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }

 private:
  const std::shared_ptr<LivingCommunicators> list_;
  const std::unique_ptr<Communicator> inner_;
};

std::unique_ptr<Communicator> LivingCommunicators::add(std::unique_ptr<Communicator> communicator) {
  return std::make_unique<Member>(shared_from_this(), std::move(communicator));
}

void LivingCommunicators::end(const Trouble& trouble) {
  const std::lock_guard lock(mutex_);
  if (trouble_) return;
  trouble_ = trouble;
  for (Communicator* member : members_) member->abort(trouble.reason);
}

std::optional<Trouble> LivingCommunicators::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

}  // namespace megatrain::parallel
