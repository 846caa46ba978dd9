#pragma once
/// @file
/// Streams and events of the CPU device.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/device/cpu/cpu_device.h"

namespace megatrain::cpu {

/// One record of an event: reached once, by the stream that it was enqueued on.
class Record {
 public:
  /// Marks it reached. @param failure  why the stream's work before it failed; null when it did not
  void complete(const std::exception_ptr& failure);
  /// Blocks until reached; orders what the stream did before the record before what follows here.
  void await();
  [[nodiscard]] bool reached();
  /// Of a reached record.
  [[nodiscard]] std::exception_ptr failure() const;
  [[nodiscard]] std::chrono::steady_clock::time_point time() const;

 private:
  std::atomic<int> reached_{0};
  std::exception_ptr failure_;
  std::chrono::steady_clock::time_point time_;
};

/// Every event of the CPU device can be timed: a stamp costs less than a second class.
class CpuEvent final : public TimedEvent {
 public:
  void synchronize() override;
  [[nodiscard]] bool reached() override;
  [[nodiscard]] double seconds_since(const TimedEvent& start) const override;

  /// Makes `record` the latest one.
  void renew(std::shared_ptr<Record> record);
  /// @throws LogicError when never recorded
  [[nodiscard]] std::shared_ptr<Record> latest() const;

 private:
  std::shared_ptr<Record> find_latest() const;

  mutable std::mutex mutex_;  // host threads may share an event
  std::shared_ptr<Record> latest_;
};

/// Work in the order in which it was enqueued.
class CpuGraph final : public Graph {
 public:
  CpuGraph() = default;
  ~CpuGraph() override;
  CpuGraph(const CpuGraph&) = delete;
  CpuGraph& operator=(const CpuGraph&) = delete;

  std::vector<std::function<void()>> work;
  std::shared_ptr<Record> launched;  ///< the end of the latest launch
};

/// A thread that runs what is enqueued, in order.
class QueueStream final : public CpuStream {
 public:
  /// @param threads  of pool(), which starts when it is first used
  QueueStream(Device& device, std::string_view name, int threads);
  /// Runs what is enqueued to its end.
  ~QueueStream() override;
  QueueStream(const QueueStream&) = delete;
  QueueStream& operator=(const QueueStream&) = delete;

  [[nodiscard]] Device& device() override { return device_; }
  void record(Event& event) override;
  void wait(Event& event) override;
  void copy(void* destination, const void* source, std::int64_t bytes) override;
  void fill(void* destination, std::uint8_t value, std::int64_t bytes) override;
  void synchronize() override;
  [[nodiscard]] std::unique_ptr<Graph> capture(const std::function<void()>& enqueue) override;
  void launch(Graph& graph) override;
  void enqueue(std::function<void()> work) override;
  [[nodiscard]] ThreadPool& pool() override;

 private:
  /// Exactly one of: work, a record to complete, a record to await.
  struct Item {
    std::function<void()> work;
    std::shared_ptr<Record> completes;
    std::shared_ptr<Record> awaits;
  };
  using Items = std::vector<std::unique_ptr<Item>>;

  void push(std::unique_ptr<Item> item);
  void push_end(std::shared_ptr<Record> record);
  bool take(Items& items);
  void run(Item& item);
  void loop();

  Device& device_;
  const int threads_;
  CpuGraph* capturing_ = nullptr;  // the issuing thread's

  std::mutex mutex_;
  std::condition_variable arrived_;
  Items queue_;                        // under mutex_
  bool asleep_ = false;                // under mutex_
  std::atomic<bool> has_work_{false};  // something is in queue_, or stopping_
  bool stopping_ = false;              // under mutex_

  std::exception_ptr failure_;  // the thread's own
  std::once_flag pool_once_;
  std::unique_ptr<ThreadPool> pool_;
  std::thread thread_;
};

}  // namespace megatrain::cpu
