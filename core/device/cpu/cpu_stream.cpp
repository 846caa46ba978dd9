#include "core/device/cpu/cpu_stream.h"

#include <pthread.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/signals_held.h"
#include "core/base/spin.h"
#include "core/device/cpu/thread_sanitizer.h"
#include "core/device/cpu/tiny_numbers.h"

namespace megatrain {

CpuStream& cpu_stream(Stream& stream) {
  auto* own = dynamic_cast<CpuStream*>(&stream);
  require(own != nullptr, "CPU work was issued on a stream of another device");
  return *own;
}

}  // namespace megatrain

namespace megatrain::cpu {

// --- Record ---

void Record::complete(const std::exception_ptr& failure) {
  give_order(this);
  const UnorderedSection section;
  failure_ = failure;
  time_ = std::chrono::steady_clock::now();
  reached_.store(1, std::memory_order_release);
  reached_.notify_all();
}

void Record::await() {
  {
    const UnorderedSection section;
    if (!spin_until([&] { return reached_.load(std::memory_order_acquire) != 0; }))
      reached_.wait(0, std::memory_order_acquire);
  }
  take_order(this);
}

bool Record::reached() {
  {
    const UnorderedSection section;
    if (reached_.load(std::memory_order_acquire) == 0) return false;
  }
  take_order(this);
  return true;
}

std::exception_ptr Record::failure() const {
  const UnorderedSection section;
  return failure_;
}

std::chrono::steady_clock::time_point Record::time() const {
  const UnorderedSection section;
  return time_;
}

// --- CpuEvent ---

namespace {

CpuEvent& own(Event& event) {
  auto* event_of_cpu = dynamic_cast<CpuEvent*>(&event);
  require(event_of_cpu != nullptr, "an event of another device was given to a CPU stream");
  return *event_of_cpu;
}

}  // namespace

void CpuEvent::renew(std::shared_ptr<Record> record) {
  const UnorderedSection section;
  const std::lock_guard lock(mutex_);
  latest_ = std::move(record);
}

std::shared_ptr<Record> CpuEvent::find_latest() const {
  const UnorderedSection section;
  const std::lock_guard lock(mutex_);
  return latest_;
}

std::shared_ptr<Record> CpuEvent::latest() const {
  auto record = find_latest();
  require(record != nullptr, "an event was waited for that was never recorded");
  return record;
}

void CpuEvent::synchronize() {
  const auto record = latest();
  record->await();
  if (const auto failure = record->failure()) std::rethrow_exception(failure);
}

bool CpuEvent::reached() {
  const auto record = find_latest();
  return record != nullptr && record->reached();
}

double CpuEvent::seconds_since(const TimedEvent& start) const {
  const auto* begin = dynamic_cast<const CpuEvent*>(&start);
  require(begin != nullptr, "times of events of two devices were compared");
  const auto first = begin->latest();
  const auto last = latest();
  require(first->reached() && last->reached(), "the time of an event that is not yet reached");
  return std::chrono::duration<double>(last->time() - first->time()).count();
}

// --- CpuGraph ---

CpuGraph::~CpuGraph() {
  if (launched) launched->await();
}

// --- QueueStream ---

namespace {

/// What threads that compute leave to others. oneDNN's generated products (2.7's sgemm, for one)
/// move the stack pointer into a workspace on the heap: the frame of a handler that runs there is
/// written over whatever lies below that workspace.
sigset_t all_but_faults() {
  sigset_t set;
  sigfillset(&set);
  // They tell of the thread's own fault. Held, they would end the process without their handler (a
  // sanitizer's, a debugger's).
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
    sigdelset(&set, fault);
  return set;
}

}  // namespace

QueueStream::QueueStream(Device& device, std::string_view name, int threads)
    : device_(device), threads_(threads) {
  const SignalsHeld held(all_but_faults());
  thread_ = std::thread([this] { loop(); });
  // The kernel keeps 15 characters of a thread's name.
  pthread_setname_np(thread_.native_handle(), std::string(name.substr(0, 15)).c_str());
}

QueueStream::~QueueStream() {
  {
    const UnorderedSection section;
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    has_work_.store(true, std::memory_order_release);
    arrived_.notify_one();
  }
  thread_.join();
}

void QueueStream::push(std::unique_ptr<Item> item) {
  // The only order that a hand-over creates: what the caller did, before this item. Each item is
  // its own token, so that an item does not inherit the order of a later call.
  give_order(item.get());
  const UnorderedSection section;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
    has_work_.store(true, std::memory_order_release);
    wake = asleep_;
  }
  if (wake) arrived_.notify_one();
}

void QueueStream::push_end(std::shared_ptr<Record> record) {
  auto item = std::make_unique<Item>();
  item->completes = std::move(record);
  push(std::move(item));
}

/// Moves everything that is queued into `items`, which is empty; false when the stream ends.
bool QueueStream::take(Items& items) {
  const auto ready = [&] { return has_work_.load(std::memory_order_acquire); };
  const bool awake = spin_until(ready);
  std::unique_lock lock(mutex_);
  if (!awake) {
    asleep_ = true;
    arrived_.wait(lock, ready);
    asleep_ = false;
  }
  std::swap(items, queue_);
  has_work_.store(stopping_, std::memory_order_relaxed);
  return !items.empty();
}

void QueueStream::run(Item& item) {
  if (item.completes) {
    item.completes->complete(failure_);
  } else if (failure_) {
    // Dropped: the stream has failed.
  } else if (item.awaits) {
    item.awaits->await();
    failure_ = item.awaits->failure();
  } else {
    try {
      item.work();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
}

void QueueStream::loop() {
  flush_tiny_numbers();  // before pool() starts threads: they inherit it
  Items items;
  for (;;) {
    {
      const UnorderedSection section;
      items.clear();
      if (!take(items)) return;
    }
    for (auto& item : items) {
      // A reference, taken without a look at the vector that the sanitizer would see.
      Item* current = nullptr;
      {
        const UnorderedSection section;
        current = item.get();
      }
      take_order(current);
      run(*current);
      current->work = nullptr;  // frees what the work holds in the order that it was made
      const UnorderedSection section;
      item.reset();
    }
  }
}

void QueueStream::enqueue(std::function<void()> work) {
  if (capturing_ != nullptr) {
    capturing_->work.push_back(std::move(work));
    return;
  }
  auto item = std::make_unique<Item>();
  item->work = std::move(work);
  push(std::move(item));
}

std::unique_ptr<Graph> QueueStream::capture(const std::function<void()>& enqueue) {
  require(capturing_ == nullptr, "a capture inside a capture");
  auto graph = std::make_unique<CpuGraph>();
  capturing_ = graph.get();
  try {
    enqueue();
  } catch (...) {
    capturing_ = nullptr;
    throw;
  }
  capturing_ = nullptr;
  return graph;
}

void QueueStream::launch(Graph& graph) {
  auto* captured = dynamic_cast<CpuGraph*>(&graph);
  require(captured != nullptr, "a graph of another device was launched on a CPU stream");
  require(capturing_ == nullptr, "a graph was launched inside a capture");
  enqueue([captured] {
    for (const auto& work : captured->work) work();
  });
  captured->launched = std::make_shared<Record>();
  push_end(captured->launched);
}

void QueueStream::record(Event& event) {
  require(capturing_ == nullptr, "an event was recorded inside a capture");
  auto record = std::make_shared<Record>();
  own(event).renew(record);
  push_end(std::move(record));
}

void QueueStream::wait(Event& event) {
  require(capturing_ == nullptr, "an event was waited for inside a capture");
  auto item = std::make_unique<Item>();
  item->awaits = own(event).latest();
  push(std::move(item));
}

void QueueStream::copy(void* destination, const void* source, std::int64_t bytes) {
  require(bytes >= 0, "a copy of a negative size");
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  require(to + bytes <= from || from + bytes <= to, "a copy between overlapping ranges");
  if (bytes == 0) return;
  enqueue([to, from, bytes] {
    announce_read(from, bytes);
    announce_write(to, bytes);
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  });
}

void QueueStream::fill(void* destination, std::uint8_t value, std::int64_t bytes) {
  require(bytes >= 0, "a fill of a negative size");
  if (bytes == 0) return;
  enqueue([destination, value, bytes] {
    announce_write(destination, bytes);
    std::memset(destination, value, static_cast<std::size_t>(bytes));
  });
}

void QueueStream::synchronize() {
  CpuEvent end;
  record(end);
  end.synchronize();
}

ThreadPool& QueueStream::pool() {
  std::call_once(pool_once_, [this] { pool_ = std::make_unique<ThreadPool>(threads_); });
  return *pool_;
}

}  // namespace megatrain::cpu
