#include "parallel/nccl/nccl_end.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace megatrain {

namespace {

using std::chrono::milliseconds;

/// How long an end that goes waits for its peers, or for the library to give up a kernel.
constexpr milliseconds kPartingLimit{10'000};
constexpr milliseconds kNewsInterval{1'000};
/// Kernels of three communicators, which may run at the same time, are resident together even when
/// no multiprocessor takes more than one block of them. A kernel that could not start while another
/// waits for it on the peer's GPU would be a deadlock.
constexpr int kShareOfMultiprocessors = 4;

/// Most waits are for microseconds; the long ones leave the processor to others.
void pause(int round) {
  if (round < 200)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(round < 2000 ? 20 : 500));
}

std::string encode(const ncclUniqueId& id) { return {id.internal, sizeof id.internal}; }

ncclUniqueId decode(const std::string& text) {
  ncclUniqueId id{};
  if (text.size() != sizeof id.internal)
    throw Error("the ranks have different versions of NCCL: their identifiers differ in size");
  std::memcpy(id.internal, text.data(), sizeof id.internal);
  return id;
}

}  // namespace

std::string nccl_error_text(ncclResult_t result, ncclComm_t comm) {
  const char* more = ncclGetLastError(comm);
  std::string text = fmt::format("NCCL: {}", ncclGetErrorString(result));
  if (more != nullptr && *more != '\0') text += fmt::format(" ({})", more);
  return text;
}

NcclEnd::NcclEnd(CudaDevice& device, std::shared_ptr<KeyValueStore> store, std::string name,
                 int rank, int size, Milliseconds timeout, std::function<void()> on_collective)
    : device_(device),
      name_(std::move(name)),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      on_collective_(std::move(on_collective)),
      board_(std::move(store), name_, rank, size),
      next_news_(Clock::now() + kNewsInterval) {}

// --- The owner ---

void NcclEnd::connect() {
  throw_failure(fmt::format("connecting '{}'", name_));
  const Clock::time_point until = Clock::now() + timeout_;
  const auto left = [&] {
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(until - Clock::now()));
  };
  board_.meet(timeout_);
  device_.make_current();
  ncclUniqueId id{};
  if (rank_ == 0) {
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess)
      throw Error(fmt::format("connecting '{}': {}", name_, nccl_error_text(result, nullptr)));
    board_.publish(encode(id));
  } else {
    id = decode(board_.read_published(left()));
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = std::max(1, device_.properties().multiprocessors / kShareOfMultiprocessors);
  {
    const std::lock_guard lock(mutex_);
    connecting_until_ = until;
  }
  run(fmt::format("connecting '{}'", name_),
      [&] { return ncclCommInitRankConfig(&comm_, size_, id, rank_, &config); });
  const std::lock_guard lock(mutex_);
  connecting_until_.reset();
}

void NcclEnd::enqueue(const Call& call, CudaStream& stream, const Launch& launch,
                      std::optional<Milliseconds> limit) {
  const std::string what = describe(call);
  std::unique_ptr<Event> begin = make_event();
  std::unique_ptr<Event> end = make_event();
  stream.record(*begin);
  Pending* entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) raise(what);
    // A deque's elements stay where they are while others come and go at its ends.
    entry = &pending_.emplace_back();
    entry->call = call;
    entry->begin = std::move(begin);
    entry->end = std::move(end);
    entry->due = Clock::now() + timeout_;
    if (limit) entry->limited = Clock::now() + *limit;
    progress_.issued = call.number;
  }
  device_.make_current();
  run(what, [&] { return launch(comm_, stream.handle()); });
  stream.record(*entry->end);
  const std::lock_guard lock(mutex_);
  entry->on_stream = true;
  entry->due.reset();
}

void NcclEnd::wait(const Call& call, Event& event) {
  const std::string what = describe(call);
  for (int round = 0; !event.reached(); ++round) {
    throw_failure(what);
    pause(round);
  }
  throw_failure(what);  // an aborted kernel is reached too
}

void NcclEnd::check() {
  std::optional<std::string> why;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) raise(failed_in_.empty() ? fmt::format("'{}'", name_) : failed_in_);
    why = reported_ ? reported_ : library_error();
  }
  if (why) give_in(fmt::format("'{}'", name_), *why);
}

void NcclEnd::close() noexcept {
  const Clock::time_point until = Clock::now() + std::min(timeout_, kPartingLimit);
  try {
    device_.make_current();
    ncclResult_t state = ncclInProgress;
    {
      const std::lock_guard lock(mutex_);
      if (comm_ != nullptr && !failure_) state = ncclCommFinalize(comm_);
    }
    for (int round = 0; state == ncclInProgress && Clock::now() < until; ++round) {
      pause(round);
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr || failure_) break;
      state = ask_library();
    }
    std::unique_lock lock(mutex_);
    if (comm_ == nullptr && !failure_) return;
    if (!failure_ && state == ncclSuccess) {
      static_cast<void>(ncclCommDestroy(std::exchange(comm_, nullptr)));
      return;
    }
    if (!failure_) {
      lock.unlock();
      abort("it left while collectives were under way");
      lock.lock();
    }
    // Only the keeper aborts: together with what else waits on this GPU.
    changed_.wait_for(lock, kPartingLimit, [&] { return aborted_; });
  } catch (const std::exception&) {
    return;  // the GPU has failed; whoever used it has heard of it
  }
}

void NcclEnd::run(const std::string& what, const std::function<ncclResult_t()>& act) {
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) raise(what);
    result = act();
  }
  for (int round = 0; result == ncclInProgress; ++round) {
    pause(round);
    const std::lock_guard lock(mutex_);
    if (failure_) raise(what);
    result = ask_library();
  }
  if (result == ncclSuccess) return;
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    why = nccl_error_text(result, comm_);
  }
  give_in(what, why);
}

void NcclEnd::give_in(const std::string& what, const std::string& why) {
  report(fmt::format("{}: {}", what, why));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_.has_value(); });
  raise(what);
}

void NcclEnd::throw_failure(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (failure_) raise(what);
}

void NcclEnd::raise(const std::string& what) const {
  throw PeerError(fmt::format("{}: {}", what, failure_->what()), failure_->ranks());
}

std::string NcclEnd::describe(const Call& call) const {
  return fmt::format("{} of '{}'", megatrain::describe(call), name_);
}

ncclResult_t NcclEnd::ask_library() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

std::optional<std::string> NcclEnd::library_error() {
  if (comm_ == nullptr) return {};
  const ncclResult_t state = ask_library();
  if (state == ncclSuccess || state == ncclInProgress) return {};
  return nccl_error_text(state, comm_);
}

std::unique_ptr<Event> NcclEnd::make_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      std::unique_ptr<Event> event = std::move(spare_.back());
      spare_.pop_back();
      return event;
    }
  }
  return device_.make_event();
}

// --- Any thread ---

void NcclEnd::abort(std::string_view reason) noexcept {
  Progress progress;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    progress = progress_;
  }
  fail(board_.give_up(reason, progress));
}

void NcclEnd::fail(const PeerError& error) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = error;
  if (!pending_.empty()) failed_in_ = describe(pending_.front().call);
  changed_.notify_all();
}

std::optional<PeerError> NcclEnd::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void NcclEnd::report(std::string what) {
  const std::lock_guard lock(mutex_);
  if (!reported_) reported_ = std::move(what);
}

// --- The observer ---

void NcclEnd::observe() noexcept {
  try {
    for (;;) {
      Pending* first = nullptr;
      {
        const std::lock_guard lock(mutex_);
        if (failure_ || pending_.empty() || !pending_.front().on_stream) break;
        first = &pending_.front();
      }
      const bool over = first->end->reached();
      if (!over && !first->begin->reached()) break;
      const std::lock_guard lock(mutex_);
      const bool is_new =
          std::exchange(progress_.reached, first->call.number) != first->call.number;
      if (is_new && on_collective_) on_collective_();
      if (!over) {
        if (!first->due) first->due = Clock::now() + timeout_;
        break;
      }
      spare_.push_back(std::move(first->begin));
      spare_.push_back(std::move(first->end));
      pending_.pop_front();
    }
    const std::lock_guard lock(mutex_);
    if (failure_ || reported_) return;
    if (const auto error = library_error()) reported_ = fmt::format("'{}': {}", name_, *error);
  } catch (const std::exception& error) {
    report(fmt::format("'{}': {}", name_, error.what()));
  }
}

// --- The keeper ---

std::optional<std::string> NcclEnd::own_trouble(Progress& progress) {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  progress = progress_;
  if (reported_) return reported_;
  if (connecting_until_ && now > *connecting_until_)
    return fmt::format("rank {} waited {} to connect '{}'", rank_, timeout_, name_);
  for (const Pending& one : pending_)
    if (one.late(now))
      return fmt::format("{}: rank {} was not answered in time ({})", describe(one.call), rank_,
                         one.limited ? "the call's limit" : fmt::format("{}", timeout_));
  return {};
}

std::optional<PeerError> NcclEnd::trouble() {
  if (auto known = failure()) return known;
  try {
    Progress progress;
    std::optional<std::string> what = own_trouble(progress);
    if (!what && Clock::now() >= next_news_) {
      what = board_.news();
      next_news_ = Clock::now() + kNewsInterval;
    }
    if (!what) return {};
    const PeerError error = board_.explain(*what, progress);
    // Somebody may have called abort() meanwhile.
    fail(error);
    return failure();
  } catch (const PeerError& known) {
    fail(known);
    return failure();
  }
}

ncclComm_t NcclEnd::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(comm_, nullptr);
}

void NcclEnd::aborted() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

void NcclEnd::end_with(std::string_view trouble) noexcept {
  Progress progress;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    progress = progress_;
  }
  fail(PeerError("another communicator of this GPU ended: " + std::string(trouble), {}));
  board_.mention(trouble, progress);
}

}  // namespace megatrain
