#include "parallel/nccl/nccl_watch.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace megatrain {

namespace {

/// Between two rounds of a thread.
constexpr std::chrono::milliseconds kInterval{20};
/// How long a thread that shall end is waited for.
constexpr std::chrono::milliseconds kPatience{15'000};

using Ends = std::vector<std::shared_ptr<NcclEnd>>;

}  // namespace

/// Shared with the threads, one of which may be left behind.
struct NcclWatch::State {
  CudaDevice& device;
  std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex:
  bool stop = false;
  int running = 2;
  Ends ends;
  std::optional<std::string> trouble;  ///< what has ended them all

  explicit State(CudaDevice& gpu) : device(gpu) {}

  /// Runs `round` with all ends until it is time to stop, or it says that it is done.
  template <class Round>
  void repeat(const Round& round) {
    make_current();
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kInterval, [&] { return stop; })) {
      const Ends all = ends;
      lock.unlock();
      round(all);
      lock.lock();
    }
    --running;
    changed.notify_all();
  }

  void make_current() noexcept {
    try {
      device.make_current();
    } catch (const std::exception&) {
      return;  // the GPU is lost, which its owner hears from every call
    }
  }

  /// Ends all communicators.
  void end_all(const std::string& why) {
    Ends all;
    {
      const std::lock_guard lock(mutex);
      trouble = why;
      all = ends;
    }
    // First nobody takes what the kernels leave behind for a result, then they leave.
    for (const auto& end : all) end->end_with(why);
    static_cast<void>(ncclGroupStart());
    for (const auto& end : all)
      if (ncclComm_t comm = end->take()) static_cast<void>(ncclCommAbort(comm));
    static_cast<void>(ncclGroupEnd());
    for (const auto& end : all) end->aborted();
  }
};

NcclWatch::NcclWatch(CudaDevice& device)
    : state_(std::make_shared<State>(device)), observer_(observe, state_), keeper_(keep, state_) {}

NcclWatch::~NcclWatch() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
  const bool ended =
      state_->changed.wait_for(lock, kPatience, [&] { return state_->running == 0; });
  lock.unlock();
  for (std::thread* thread : {&observer_, &keeper_}) {
    if (ended)
      thread->join();
    else
      thread->detach();
  }
}

void NcclWatch::add(const std::shared_ptr<NcclEnd>& end) {
  std::optional<std::string> trouble;
  {
    const std::lock_guard lock(state_->mutex);
    trouble = state_->trouble;
    if (!trouble) state_->ends.push_back(end);
  }
  if (!trouble) return;
  end->end_with(*trouble);
  end->aborted();
}

void NcclWatch::remove(const NcclEnd* end) {
  const std::lock_guard lock(state_->mutex);
  std::erase_if(state_->ends, [&](const auto& one) { return one.get() == end; });
}

void NcclWatch::observe(const std::shared_ptr<State>& state) {
  state->repeat([](const Ends& ends) {
    for (const auto& end : ends) end->observe();
  });
}

void NcclWatch::keep(const std::shared_ptr<State>& state) {
  bool ended = false;
  state->repeat([&](const Ends& ends) {
    for (const auto& end : ends) {
      if (ended) return;
      if (const auto trouble = end->trouble()) {
        ended = true;
        state->end_all(trouble->what());
      }
    }
  });
}

}  // namespace megatrain
