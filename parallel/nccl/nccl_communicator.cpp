#include "parallel/nccl/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "parallel/cpu/call.h"
#include "parallel/cpu/rank_order_sum.h"

namespace megatrain {

namespace {

/// Values of each rank that an agreement takes at a time.
constexpr Index kAgreementValues = 64;
constexpr Index kPage = 4096;
/// fp32 values of each rank in the first collectives: so many that NCCL moves them as it moves
/// slabs.
constexpr Index kFirstCount = Index{1} << 20;

/// Where the values of all ranks lie while they agree: on the GPU, and on the host for its copies.
class AgreementBuffers {
 public:
  AgreementBuffers(Device& device, int size)
      : bytes_(round_up(kAgreementValues * size * Index{sizeof(double)}, kPage)),
        device_(device.allocate(bytes_)),
        host_(static_cast<double*>(::operator new(bytes(), std::align_val_t{kPage}))),
        registration_(device.register_host(host_.get(), bytes_)) {}
  [[nodiscard]] double* on_device() const { return reinterpret_cast<double*>(device_->data()); }
  [[nodiscard]] double* on_host() const { return host_.get(); }

 private:
  struct Free {
    void operator()(double* data) const { ::operator delete(data, std::align_val_t{kPage}); }
  };
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(bytes_); }

  const Index bytes_;
  const std::unique_ptr<DeviceMemory> device_;
  const std::unique_ptr<double, Free> host_;
  const std::unique_ptr<HostRegistration> registration_;
};

CudaStream& cuda_stream(Stream& stream) {
  auto* cuda = dynamic_cast<CudaStream*>(&stream);
  require(cuda != nullptr, "a collective of GPUs on a stream of another device");
  return *cuda;
}

/// What moves data moves bytes.
std::size_t bytes_of(Index count, DType type) {
  return static_cast<std::size_t>(count * size_of(type));
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(CudaDevice& device, std::shared_ptr<NcclWatch> watch,
                   std::shared_ptr<NcclEnd> end, std::string name, int rank, int size)
      : name_(std::move(name)),
        rank_(rank),
        size_(size),
        watch_(std::move(watch)),
        end_(std::move(end)),
        buffers_(device, size),
        agreements_(device.make_stream("agreements of '" + name_ + "'")),
        agreed_(device.make_event()) {
    watch_->add(end_);
    // Given back after leaving: collectives that failed may be in it until then.
    const std::unique_ptr<DeviceMemory> memory =
        device.allocate(size * kFirstCount * size_of(DType::f32));
    try {
      end_->connect();
      run_once(*memory);
    } catch (...) {
      leave();
      throw;
    }
  }
  ~NcclCommunicator() override { leave(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view name() const override { return name_; }

  void all_gather(Stream& stream, const void* slice, void* whole, Index count,
                  DType type) override {
    if (!calls_.admit(stream, count)) return;
    const std::size_t bytes = bytes_of(count, type);
    require_in_place_or_apart(slice, whole, static_cast<Index>(bytes), rank_, size_);
    enqueue(calls_.next(Collective::all_gather, count, type), stream,
            [=](ncclComm_t comm, cudaStream_t on) {
              return ncclAllGather(slice, whole, bytes, ncclUint8, comm, on);
            });
  }

  void reduce_scatter(Stream& stream, const float* whole, float* slice, Index count) override {
    if (!calls_.admit(stream, count)) return;
    require_in_place_or_apart(slice, whole, count * size_of(DType::f32), rank_, size_);
    enqueue(calls_.next(Collective::reduce_scatter, count, DType::f32), stream,
            [=](ncclComm_t comm, cudaStream_t on) {
              return ncclReduceScatter(whole, slice, static_cast<std::size_t>(count), ncclFloat32,
                                       ncclSum, comm, on);
            });
  }

  void all_reduce(Stream& stream, float* data, Index count) override {
    all_reduce(stream, data, count, DType::f32);
  }

  void all_reduce(Stream& stream, void* data, Index count, DType type) override {
    if (!calls_.admit(stream, count)) return;
    const ncclDataType_t element = type == DType::f32 ? ncclFloat32 : ncclBfloat16;
    enqueue(calls_.next(Collective::all_reduce, count, type), stream,
            [=](ncclComm_t comm, cudaStream_t on) {
              return ncclAllReduce(data, data, static_cast<std::size_t>(count), element, ncclSum,
                                   comm, on);
            });
  }

  void broadcast(Stream& stream, void* data, Index count, DType type, int root) override {
    require(root >= 0 && root < size_, "a broadcast from a rank that is none");
    if (!calls_.admit(stream, count)) return;
    Call call = calls_.next(Collective::broadcast, count, type);
    call.root = root;
    const std::size_t bytes = bytes_of(count, type);
    enqueue(call, stream, [=](ncclComm_t comm, cudaStream_t on) {
      return ncclBroadcast(data, data, bytes, ncclUint8, root, comm, on);
    });
  }

  void sum(std::span<double> values) override {
    while (!values.empty()) {
      const std::size_t count = std::min(values.size(), static_cast<std::size_t>(kAgreementValues));
      const std::span<double> piece = values.first(count);
      sum_in_rank_order(gather(Collective::sum, piece), piece);
      values = values.subspan(count);
    }
  }

  [[nodiscard]] double max(double value) override {
    return largest(gather(Collective::max, {&value, 1}));
  }

  void barrier(std::chrono::milliseconds deadline) override {
    // Nobody has a value of every rank before every rank is there.
    const double nothing = 0;
    gather(Collective::barrier, {&nothing, 1}, deadline);
  }

  void check() override { end_->check(); }
  void abort(std::string_view reason) noexcept override { end_->abort(reason); }

 private:
  void enqueue(const Call& call, Stream& stream, const NcclEnd::Launch& launch) {
    end_->enqueue(call, cuda_stream(stream), launch);
  }

  /// The values of each rank, in the order of the ranks.
  std::span<const double> gather(Collective collective, std::span<const double> values,
                                 std::optional<std::chrono::milliseconds> limit = std::nullopt) {
    const std::size_t count = values.size();
    const std::size_t all = count * static_cast<std::size_t>(size_);
    double* host = buffers_.on_host();
    double* device = buffers_.on_device();
    double* own = device + count * static_cast<std::size_t>(rank_);
    std::ranges::copy(values, host);
    const Call call = calls_.next(
        collective, collective == Collective::barrier ? 0 : static_cast<Index>(count), DType::f32);
    agreements_->copy(own, host, static_cast<Index>(count * sizeof(double)));
    end_->enqueue(
        call, cuda_stream(*agreements_),
        [=](ncclComm_t comm, cudaStream_t on) {
          return ncclAllGather(own, device, count, ncclFloat64, comm, on);
        },
        limit);
    agreements_->copy(host, device, static_cast<Index>(all * sizeof(double)));
    agreements_->record(*agreed_);
    end_->wait(call, *agreed_);
    return {host, all};
  }

  /// One collective of each kind that moves a step's data, on zeros. NCCL takes the device memory
  /// of its channels when it first needs them: who measures what is free shall see it taken.
  void run_once(DeviceMemory& memory) {
    agreements_->fill(memory.data(), 0, memory.bytes());
    std::byte* const whole = memory.data();
    std::byte* const own = whole + rank_ * kFirstCount * size_of(DType::f32);
    const auto count = static_cast<std::size_t>(kFirstCount);
    const auto enqueue_first = [&](Collective collective, const NcclEnd::Launch& launch) {
      enqueue(calls_.next(collective, kFirstCount, DType::f32), *agreements_, launch);
    };
    enqueue_first(Collective::all_gather, [=](ncclComm_t comm, cudaStream_t on) {
      return ncclAllGather(own, whole, count, ncclFloat32, comm, on);
    });
    enqueue_first(Collective::reduce_scatter, [=](ncclComm_t comm, cudaStream_t on) {
      return ncclReduceScatter(whole, own, count, ncclFloat32, ncclSum, comm, on);
    });
    enqueue_first(Collective::all_reduce, [=](ncclComm_t comm, cudaStream_t on) {
      return ncclAllReduce(whole, whole, count, ncclFloat32, ncclSum, comm, on);
    });
    // It waits for its values: behind it the memory is nobody's.
    const double nothing = 0;
    (void)gather(Collective::barrier, {&nothing, 1});
  }

  void leave() noexcept {
    end_->close();
    watch_->remove(end_.get());
  }

  const std::string name_;
  const int rank_;
  const int size_;
  const std::shared_ptr<NcclWatch> watch_;
  const std::shared_ptr<NcclEnd> end_;
  const AgreementBuffers buffers_;
  const std::unique_ptr<Stream> agreements_;
  const std::unique_ptr<Event> agreed_;
  CallOrder calls_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(CudaDevice& device,
                                                     std::shared_ptr<NcclWatch> watch,
                                                     std::shared_ptr<NcclEnd> end, std::string name,
                                                     int rank, int size) {
  return std::make_unique<NcclCommunicator>(device, std::move(watch), std::move(end),
                                            std::move(name), rank, size);
}

}  // namespace megatrain
