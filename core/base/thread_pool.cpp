#include "core/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "core/base/error.h"

namespace megatrain {

namespace {

/// CPUs that the cgroup (v2, then v1) allows in time; 0 when it sets no limit.
int cgroup_cpu_limit() {
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file) {
    std::string quota;
    double period = 0;
    if (file >> quota >> period && quota != "max" && period > 0)
      return static_cast<int>(std::stod(quota) / period + 0.999);
    return 0;
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0)
    return static_cast<int>(quota / period + 0.999);
  return 0;
}

}  // namespace

int available_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cores = 1;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0)
    cores = CPU_COUNT(&mask);
  else
    cores = static_cast<int>(std::thread::hardware_concurrency());
  const int limit = cgroup_cpu_limit();
  if (limit > 0 && limit < cores) cores = limit;
  return cores > 0 ? cores : 1;
}

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable start;
  std::condition_variable done;
  std::vector<std::thread> workers;

  // The current loop; written under the mutex before `generation` moves on.
  std::uint64_t generation = 0;
  bool stopping = false;
  const std::function<void(std::int64_t)>* body = nullptr;
  std::int64_t pieces = 0;
  std::atomic<std::int64_t> next{0};
  int running = 0;
  std::exception_ptr failure;

  void work() {
    for (std::int64_t piece = next.fetch_add(1, std::memory_order_relaxed); piece < pieces;
         piece = next.fetch_add(1, std::memory_order_relaxed)) {
      try {
        (*body)(piece);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  }

  void loop() {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      start.wait(lock, [&] { return stopping || generation != seen; });
      if (stopping) return;
      seen = generation;
      lock.unlock();
      work();
      lock.lock();
      if (--running == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads, std::vector<int> cpus) : state_(std::make_unique<State>()) {
  if (threads < 1) throw UserError("a thread pool needs at least 1 thread");
  for (int i = 1; i < threads; ++i) {
    state_->workers.emplace_back([this] { state_->loop(); });
    const auto worker = static_cast<std::size_t>(i);
    if (worker < cpus.size()) {
      cpu_set_t mask;
      CPU_ZERO(&mask);
      CPU_SET(static_cast<std::size_t>(cpus[worker]), &mask);
      pthread_setaffinity_np(state_->workers.back().native_handle(), sizeof(mask), &mask);
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->start.notify_all();
  for (auto& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::for_each(std::int64_t pieces, const std::function<void(std::int64_t)>& body) {
  if (pieces <= 0) return;
  if (pieces == 1 || state_->workers.empty()) {
    // The same promise as below: every piece runs, the first failure is rethrown.
    std::exception_ptr failure;
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      try {
        body(piece);
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->body = &body;
    state_->pieces = pieces;
    state_->next.store(0, std::memory_order_relaxed);
    state_->running = static_cast<int>(state_->workers.size());
    state_->failure = nullptr;
    ++state_->generation;
  }
  state_->start.notify_all();
  state_->work();
  std::unique_lock lock(state_->mutex);
  state_->done.wait(lock, [&] { return state_->running == 0; });
  state_->body = nullptr;
  if (state_->failure) std::rethrow_exception(state_->failure);
}

}  // namespace megatrain
