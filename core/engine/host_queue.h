#pragma once
/// @file
/// Host work in order, beside the issuing thread: the optimizer's updates, a state's hand-over.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace megatrain {

/// One worker thread and a counter of finished work. A ticket is the count at which its work is
/// done; the issuing thread waits for counters, never for the device. Work of one queue may wait
/// for tickets of another that were given out before it.
class HostQueue {
 public:
  using Ticket = std::uint64_t;

  HostQueue();
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  /// Appends work. After a failure, later work is dropped and every wait rethrows the failure.
  Ticket enqueue(std::function<void()> work);
  /// The ticket of the latest work: what is enqueued so far. 0: nothing yet, which is done.
  [[nodiscard]] Ticket issued() const;
  /// Whether the ticket's work is done and nothing has failed: waiting would return at once.
  [[nodiscard]] bool done(Ticket ticket) const;
  /// Returns when the ticket's work is done. @throws what the work threw
  void wait(Ticket ticket);
  /// Waits for everything.
  void drain();
  /// Waits until nothing runs or is left to run, whatever failed: for an owner that is about to go.
  void finish() noexcept;
  /// The most work that ever waited or ran at once.
  [[nodiscard]] std::size_t most_queued() const;

 private:
  void loop();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  Ticket issued_ = 0;
  Ticket done_ = 0;
  std::size_t most_queued_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread worker_;
};

}  // namespace megatrain
