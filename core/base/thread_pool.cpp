#include "core/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/spin.h"

namespace megatrain {

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable start;
  std::condition_variable done;
  std::vector<std::thread> workers;
  int asleep = 0;  // workers that wait for `start`
  bool stopping = false;

  // The current loop; written under the mutex while no worker is in a loop. A worker joins only
  // while the loop is open, so the caller waits for those who joined, not for those who sleep.
  std::atomic<std::uint64_t> generation{0};  // moves on when a loop opens, and at the end
  bool open = false;
  const std::function<void(std::int64_t)>* body = nullptr;
  std::int64_t pieces = 0;
  std::atomic<std::int64_t> next{0};
  std::atomic<int> working{0};  // workers that joined and have not left
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
    const auto moved_on = [&] { return generation.load(std::memory_order_acquire) != seen; };
    for (;;) {
      const bool awake = spin_until(moved_on);
      std::unique_lock lock(mutex);
      if (!awake) {
        ++asleep;
        start.wait(lock, moved_on);
        --asleep;
      }
      if (stopping) return;
      seen = generation.load(std::memory_order_relaxed);
      if (!open) continue;
      working.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      work();
      lock.lock();
      if (working.fetch_sub(1, std::memory_order_release) == 1 && !open) done.notify_one();
    }
  }

  /// Wakes at most `wanted` sleepers; those that are awake see the generation move.
  void wake(std::int64_t wanted, int sleepers) {
    if (wanted >= sleepers) {
      if (sleepers > 0) start.notify_all();
    } else {
      for (std::int64_t i = 0; i < wanted; ++i) start.notify_one();
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
    state_->generation.fetch_add(1, std::memory_order_release);
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
  State& state = *state_;
  int sleepers = 0;
  {
    const std::lock_guard lock(state.mutex);
    state.body = &body;
    state.pieces = pieces;
    state.next.store(0, std::memory_order_relaxed);
    state.failure = nullptr;
    state.open = true;
    state.generation.fetch_add(1, std::memory_order_release);
    sleepers = state.asleep;
  }
  state.wake(pieces - 1, sleepers);
  state.work();
  std::unique_lock lock(state.mutex);
  state.open = false;
  const auto all_left = [&] { return state.working.load(std::memory_order_acquire) == 0; };
  if (!all_left()) {
    lock.unlock();
    spin_until(all_left);
    lock.lock();
    state.done.wait(lock, all_left);
  }
  state.body = nullptr;
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

}  // namespace megatrain
