#include "core/engine/host_queue.h"

#include <algorithm>

namespace megatrain {

HostQueue::HostQueue() : worker_([this] { loop(); }) {}

HostQueue::~HostQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

HostQueue::Ticket HostQueue::enqueue(std::function<void()> work) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    ticket = ++issued_;
    most_queued_ = std::max(most_queued_, static_cast<std::size_t>(issued_ - done_));
  }
  changed_.notify_all();
  return ticket;
}

HostQueue::Ticket HostQueue::issued() const {
  const std::lock_guard lock(mutex_);
  return issued_;
}

bool HostQueue::done(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  return done_ >= ticket && !failure_;
}

std::size_t HostQueue::most_queued() const {
  const std::lock_guard lock(mutex_);
  return most_queued_;
}

void HostQueue::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= ticket || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void HostQueue::drain() { wait(issued()); }

void HostQueue::finish() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ == issued_; });
}

void HostQueue::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !work_.empty(); });
    if (work_.empty()) return;
    std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    const bool dropped = failure_ != nullptr;
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (!dropped) work();
    } catch (...) {
      failure = std::current_exception();
    }
    work = {};  // what it holds is let go of before it counts as done
    lock.lock();
    if (failure) failure_ = failure;
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace megatrain
