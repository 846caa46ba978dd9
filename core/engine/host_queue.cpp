#include "core/engine/host_queue.h"

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
  }
  changed_.notify_all();
  return ticket;
}

void HostQueue::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= ticket || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void HostQueue::drain() {
  Ticket last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = issued_;
  }
  wait(last);
}

void HostQueue::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !work_.empty(); });
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    if (!failure_) {
      lock.unlock();
      std::exception_ptr failure;
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failure_ = failure;
    }
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace megatrain
