#include "core/device/cuda/cuda_stream.h"

#include <fmt/format.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <atomic>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "core/base/error.h"
#include "core/device/cuda/check.h"

namespace megatrain {

namespace {

/// The CUDA side of both kinds of event. Host threads may record and wait at the same time, so the
/// flag is atomic.
class EventState {
 public:
  EventState(const CudaDevice& device, unsigned flags) : device_(device) {
    device.make_current();
    check(cudaEventCreateWithFlags(&event_, flags), "creating an event");
  }
  EventState(const EventState&) = delete;
  EventState& operator=(const EventState&) = delete;

  void record(cudaStream_t stream) {
    check(cudaEventRecord(event_, stream), "recording an event");
    recorded_.store(true, std::memory_order_release);
  }

  /// The event, of which something is about to be asked.
  [[nodiscard]] cudaEvent_t recorded(std::string_view use) const {
    if (!recorded_.load(std::memory_order_acquire))
      throw LogicError(fmt::format("internal error: {} an event that was never recorded", use));
    return event_;
  }

 protected:
  ~EventState() { static_cast<void>(cudaEventDestroy(event_)); }
  const CudaDevice& device_;

 private:
  cudaEvent_t event_ = nullptr;
  std::atomic<bool> recorded_ = false;
};

/// Event and TimedEvent over one state.
template <class Interface>
class CudaEventOf : public Interface, public EventState {
 public:
  using EventState::EventState;

  void synchronize() override {
    device_.make_current();
    check(cudaEventSynchronize(recorded("waiting for")), "waiting for an event");
  }

  bool reached() override {
    device_.make_current();
    const cudaError_t status = cudaEventQuery(recorded("asking after"));
    if (status == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    check(status, "asking after an event");
    return true;
  }
};

class CudaTimedEvent final : public CudaEventOf<TimedEvent> {
 public:
  using CudaEventOf::CudaEventOf;

  double seconds_since(const TimedEvent& start) const override {
    const auto* other = dynamic_cast<const CudaTimedEvent*>(&start);
    if (other == nullptr) throw LogicError("internal error: time since an event of another device");
    device_.make_current();
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, other->recorded("timing"), recorded("timing")),
          "timing events");
    return static_cast<double>(milliseconds) * 1e-3;
  }
};

EventState& state_of(Event& event) {
  auto* state = dynamic_cast<EventState*>(&event);
  if (state == nullptr) throw LogicError("internal error: an event of another device");
  return *state;
}

/// A graph as the driver runs it.
class CudaGraph final : public Graph {
 public:
  /// @param graph  only read
  CudaGraph(const CudaDevice& device, cudaGraph_t graph, std::string_view stream)
      : device_(device) {
    check(cudaGraphInstantiateWithFlags(&executable_, graph, 0),
          fmt::format("making a graph that was captured on stream '{}' ready", stream));
  }
  ~CudaGraph() override {
    static_cast<void>(cudaSetDevice(device_.properties().ordinal));
    if (launched_on_ != nullptr) static_cast<void>(cudaStreamSynchronize(launched_on_));
    static_cast<void>(cudaGraphExecDestroy(executable_));
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  [[nodiscard]] cudaError_t launch(cudaStream_t stream) {
    launched_on_ = stream;
    return cudaGraphLaunch(executable_, stream);
  }

 private:
  const CudaDevice& device_;
  cudaGraphExec_t executable_ = nullptr;
  cudaStream_t launched_on_ = nullptr;  // the latest; launches of one graph run one after another
};

struct GraphDestroyer {
  void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
};
using CapturedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDestroyer>;

class CudaStreamImpl final : public CudaStream {
 public:
  CudaStreamImpl(CudaDevice& device, std::string_view name) : device_(device), name_(name) {
    device_.make_current();
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
    nvtxNameCudaStreamA(stream_, name_.c_str());
  }
  ~CudaStreamImpl() override { static_cast<void>(cudaStreamDestroy(stream_)); }
  CudaStreamImpl(const CudaStreamImpl&) = delete;
  CudaStreamImpl& operator=(const CudaStreamImpl&) = delete;

  CUstream_st* handle() const override { return stream_; }
  Device& device() override { return device_; }

  void record(Event& event) override {
    device_.make_current();
    state_of(event).record(stream_);
  }

  void wait(Event& event) override {
    device_.make_current();
    check(cudaStreamWaitEvent(stream_, state_of(event).recorded("waiting on a stream for"), 0),
          "waiting on a stream for an event");
  }

  void copy(void* destination, const void* source, std::int64_t bytes) override {
    require(bytes >= 0, "a copy of negative size");
    if (bytes == 0) return;
    device_.make_current();
    require_registered(destination);
    require_registered(source);
    const cudaError_t status = cudaMemcpyAsync(destination, source, static_cast<std::size_t>(bytes),
                                               cudaMemcpyDefault, stream_);
    if (status != cudaSuccess) fail(status, "copying", bytes);
  }

  void fill(void* destination, std::uint8_t value, std::int64_t bytes) override {
    require(bytes >= 0, "a fill of negative size");
    if (bytes == 0) return;
    device_.make_current();
    const cudaError_t status =
        cudaMemsetAsync(destination, value, static_cast<std::size_t>(bytes), stream_);
    if (status != cudaSuccess) fail(status, "filling", bytes);
  }

  void synchronize() override {
    device_.make_current();
    const cudaError_t status = cudaStreamSynchronize(stream_);
    if (status != cudaSuccess) check(status, fmt::format("waiting for stream '{}'", name_));
  }

  std::unique_ptr<Graph> capture(const std::function<void()>& enqueue) override {
    device_.make_current();
    // Thread-local: what this thread must not do in a capture fails, such as an allocation; other
    // threads, which wait for events meanwhile, are left alone.
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          fmt::format("beginning a capture on stream '{}'", name_));
    try {
      enqueue();
    } catch (...) {
      // The stream is to be of use again; what was captured is of none.
      static_cast<void>(end_capture());
      static_cast<void>(cudaGetLastError());
      throw;
    }
    const auto [status, graph] = end_capture();
    check(status, fmt::format("ending a capture on stream '{}'", name_));
    return std::make_unique<CudaGraph>(device_, graph.get(), name_);
  }

  void launch(Graph& graph) override {
    auto* own = dynamic_cast<CudaGraph*>(&graph);
    if (own == nullptr) throw LogicError("internal error: a graph of another device");
    device_.make_current();
    const cudaError_t status = own->launch(stream_);
    if (status != cudaSuccess)
      check(status, fmt::format("launching a graph on stream '{}'", name_));
  }

 private:
  [[nodiscard]] std::pair<cudaError_t, CapturedGraph> end_capture() const {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream_, &graph);
    return {status, CapturedGraph(graph)};
  }

  void fail(cudaError_t status, std::string_view action, std::int64_t bytes) const {
    check(status, fmt::format("{} {} bytes on stream '{}'", action, bytes, name_));
  }

  /// A copy from or to pageable memory would block the issuing thread in silence.
  void require_registered(const void* pointer) const {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, pointer), "looking up an address");
    if (attributes.type == cudaMemoryTypeUnregistered)
      throw LogicError(
          fmt::format("internal error: a copy on stream '{}' touches host memory that is not "
                      "registered with the device",
                      name_));
  }

  CudaDevice& device_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Stream> make_cuda_stream(CudaDevice& device, std::string_view name) {
  return std::make_unique<CudaStreamImpl>(device, name);
}

std::unique_ptr<Event> make_cuda_event(const CudaDevice& device) {
  return std::make_unique<CudaEventOf<Event>>(device,
                                              cudaEventDisableTiming | cudaEventBlockingSync);
}

std::unique_ptr<TimedEvent> make_cuda_timed_event(const CudaDevice& device) {
  return std::make_unique<CudaTimedEvent>(device, cudaEventBlockingSync);
}

}  // namespace megatrain
