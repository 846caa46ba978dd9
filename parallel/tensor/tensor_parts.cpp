#include "parallel/tensor/tensor_parts.h"

#include <utility>

namespace megatrain {

namespace {

class TensorParts final : public PartGroup {
 public:
  explicit TensorParts(std::unique_ptr<Communicator> tensor) : tensor_(std::move(tensor)) {}

  [[nodiscard]] Partition partition() const override { return {tensor_->size(), tensor_->rank()}; }
  void sum(Stream& stream, void* data, Index count, DType type) const override {
    tensor_->all_reduce(stream, data, count, type);
  }
  void gather(Stream& stream, const void* own, void* whole, Index count,
              DType type) const override {
    tensor_->all_gather(stream, own, whole, count, type);
  }
  void sum(std::span<double> values) const override { tensor_->sum(values); }
  void check() const override { tensor_->check(); }
  void abort(std::string_view reason) const noexcept override { tensor_->abort(reason); }

 private:
  std::unique_ptr<Communicator> tensor_;
};

}  // namespace

std::unique_ptr<PartGroup> make_tensor_parts(std::unique_ptr<Communicator> tensor) {
  return std::make_unique<TensorParts>(std::move(tensor));
}

}  // namespace megatrain
