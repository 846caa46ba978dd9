#pragma once
/// @file
/// Host work in order, beside the issuing thread: the optimizer's updates.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace megatrain {

/// One worker thread and a counter of finished work. A ticket is the count at which its work is
/// done; the issuing thread waits for counters, never for the device.
class HostQueue {
 public:
  using Ticket = std::uint64_t;

  HostQueue();
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  /// Appends work. After a failure, later work is dropped and every wait rethrows the failure.
  Ticket enqueue(std::function<void()> work);
  /// Returns when the ticket's work is done. @throws what the work threw
  void wait(Ticket ticket);
  /// Waits for everything.
  void drain();

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  Ticket issued_ = 0;
  Ticket done_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread worker_;
};

}  // namespace megatrain
