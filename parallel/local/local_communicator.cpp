#include "parallel/local/local_communicator.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "core/device/cpu/thread_sanitizer.h"
#include "core/engine/solo_communicator.h"
#include "parallel/cpu/cpu_communicator.h"
#include "parallel/cpu/rank_order_sum.h"

namespace megatrain {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

/// Steps of a collective that no rank takes before all have taken the one before.
constexpr std::size_t kSteps = 3;

/// One collective: which step each rank has reached, and where its data lies.
struct Meeting {
  explicit Meeting(int size) : reached(at(size), 0), data(at(size), nullptr) {}
  std::vector<std::size_t> reached;
  std::vector<const void*> data;
  std::optional<Call> call;  // as the first to arrive made it
  std::size_t gone = 0;      // ranks that are done with it
  /// What the thread sanitizer knows the steps by.
  std::array<char, kSteps + 1> tokens{};

  [[nodiscard]] bool complete(std::size_t step) const {
    return std::ranges::all_of(reached, [&](std::size_t own) { return own >= step; });
  }
};

/// What the ranks share.
class LocalGroup {
 public:
  LocalGroup(std::string name, int size, milliseconds timeout)
      : name_(std::move(name)), size_(size), timeout_(timeout), left_(at(size), false) {}

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] milliseconds timeout() const { return timeout_; }

  /// Step 1: waits for all ranks. Afterwards none can fail to take the further steps, so data of
  /// others may be read until the last of them.
  Meeting& meet(int rank, const Call& call, const void* data, milliseconds deadline) {
    Meeting* meeting = nullptr;
    {
      const UnorderedSection section;
      meeting = &arrive(rank, call, data);
    }
    give_order(&meeting->tokens[1]);
    std::optional<PeerError> trouble;
    bool differs = false;
    {
      const UnorderedSection section;
      std::unique_lock lock(mutex_);
      // After a failure nobody arrives, so that those who have are not left alone.
      if (!failure_) meeting->reached[at(rank)] = 1;
      changed_.notify_all();
      const auto ready = [&] {
        return meeting->complete(1) || failure_ || first_gone(*meeting) >= 0;
      };
      const bool in_time = changed_.wait_for(lock, deadline, ready);
      if (!meeting->complete(1)) {
        if (!failure_) failure_ = explain(rank, *meeting, in_time, deadline);
        changed_.notify_all();
        trouble = PeerError(fmt::format("{} of '{}': {}", describe(call), name_, failure_->what()),
                            failure_->ranks());
        differs = differs_;
      }
    }
    if (differs) throw LogicError(trouble->what());
    if (trouble) throw PeerError(*trouble);
    take_order(&meeting->tokens[1]);
    return *meeting;
  }

  /// Takes a further step and waits until all have.
  void step(int rank, Meeting& meeting, std::size_t number) {
    give_order(&meeting.tokens[number]);
    {
      const UnorderedSection section;
      std::unique_lock lock(mutex_);
      meeting.reached[at(rank)] = number;
      changed_.notify_all();
      changed_.wait(lock, [&] { return meeting.complete(number); });
    }
    take_order(&meeting.tokens[number]);
  }

  /// The last thing that a rank does with a meeting.
  void part(Meeting& meeting) {
    const UnorderedSection section;
    const std::lock_guard lock(mutex_);
    if (++meeting.gone == at(size_)) meetings_.erase(meeting.call->number);
  }

  void abort(int rank, std::string_view reason) {
    const UnorderedSection section;
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = PeerError(fmt::format("ended by rank {}: {}", rank, reason), {rank});
    changed_.notify_all();
  }

  void leave(int rank) {
    const UnorderedSection section;
    const std::lock_guard lock(mutex_);
    left_[at(rank)] = true;
    changed_.notify_all();
  }

 private:
  Meeting& arrive(int rank, const Call& call, const void* data) {
    const std::lock_guard lock(mutex_);
    Meeting& meeting = meetings_.try_emplace(call.number, size_).first->second;
    meeting.data[at(rank)] = data;
    if (!meeting.call) {
      meeting.call = call;
    } else if (*meeting.call != call && !failure_) {
      differs_ = true;
      failure_ = PeerError(fmt::format("the ranks do not make the same calls: rank {} is in {}, "
                                       "others are in {}",
                                       rank, describe(call), describe(*meeting.call)),
                           {rank});
    }
    return meeting;
  }

  /// A rank that will never come, or -1.
  [[nodiscard]] int first_gone(const Meeting& meeting) const {
    for (int rank = 0; rank < size_; ++rank)
      if (left_[at(rank)] && meeting.reached[at(rank)] == 0) return rank;
    return -1;
  }

  [[nodiscard]] PeerError explain(int rank, const Meeting& meeting, bool in_time,
                                  milliseconds deadline) const {
    if (in_time) {
      const int gone = first_gone(meeting);
      return {fmt::format("rank {} waits for rank {}, which has left", rank, gone), {gone}};
    }
    std::vector<int> missing;
    for (int other = 0; other < size_; ++other)
      if (meeting.reached[at(other)] == 0) missing.push_back(other);
    return {fmt::format("rank {} waited {} for {} {}", rank, deadline,
                        missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", ")),
            missing};
  }

  const std::string name_;
  const int size_;
  const milliseconds timeout_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Meeting> meetings_;  // by the number of the call
  std::vector<bool> left_;                     // whose communicator is gone
  std::optional<PeerError> failure_;           // the first one ends all
  bool differs_ = false;                       // it is one of the program
};

/// A rank's end.
class LocalCollectives final : public BlockingCollectives {
 public:
  LocalCollectives(std::shared_ptr<LocalGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  void all_gather(const Call& call, const std::byte* slice, std::byte* whole) override {
    Meeting& meeting = meet(call, slice);
    const auto bytes = static_cast<std::size_t>(call.count * size_of(call.type));
    for (int rank = 0; rank < group_->size(); ++rank)
      copy(static_cast<const std::byte*>(meeting.data[at(rank)]), whole + at(rank) * bytes, bytes);
    group_->step(rank_, meeting, 2);
    group_->part(meeting);
  }

  void reduce_scatter(const Call& call, const float* whole, float* slice) override {
    Meeting& meeting = meet(call, whole);
    // Others read their own places of this rank's data, never the one that is written here.
    sum(meeting, rank_ * call.count, slice, call.count);
    group_->step(rank_, meeting, 2);
    group_->part(meeting);
  }

  void all_reduce(const Call& call, std::byte* data) override {
    if (call.type == DType::f32)
      all_reduce_of(call, reinterpret_cast<float*>(data));
    else
      all_reduce_of(call, reinterpret_cast<bfloat16*>(data));
  }

  void broadcast(const Call& call, std::byte* data) override {
    Meeting& meeting = meet(call, data);
    copy(static_cast<const std::byte*>(meeting.data[at(call.root)]), data,
         static_cast<std::size_t>(call.count * size_of(call.type)));
    group_->step(rank_, meeting, 2);
    group_->part(meeting);
  }

  void gather(const Call& call, std::span<const double> mine, std::span<double> all) override {
    Meeting& meeting = meet(call, mine.data());
    for (int rank = 0; rank < group_->size(); ++rank)
      copy(static_cast<const double*>(meeting.data[at(rank)]), all.data() + at(rank) * mine.size(),
           mine.size());
    group_->step(rank_, meeting, 2);
    group_->part(meeting);
  }

  void barrier(const Call& call, milliseconds deadline) override {
    group_->part(group_->meet(rank_, call, nullptr, deadline));
  }

  void abort(std::string_view reason) noexcept override { group_->abort(rank_, reason); }
  void leave() noexcept override { group_->leave(rank_); }

 private:
  Meeting& meet(const Call& call, const void* data) {
    return group_->meet(rank_, call, data, group_->timeout());
  }

  template <class T>
  void all_reduce_of(const Call& call, T* data) {
    Meeting& meeting = meet(call, data);
    // Each rank adds up its share in place, then takes the shares of the others.
    const auto share = [&](int rank) { return call.count * rank / group_->size(); };
    const Index begin = share(rank_);
    sum(meeting, begin, data + begin, share(rank_ + 1) - begin);
    group_->step(rank_, meeting, 2);
    for (int rank = 0; rank < group_->size(); ++rank) {
      const auto* other = static_cast<const T*>(meeting.data[at(rank)]);
      copy(other + share(rank), data + share(rank),
           static_cast<std::size_t>(share(rank + 1) - share(rank)));
    }
    group_->step(rank_, meeting, 3);
    group_->part(meeting);
  }

  template <class T>
  static void copy(const T* from, T* to, std::size_t count) {
    if (from != to) std::memcpy(to, from, count * sizeof(T));
  }

  template <class T>
  static void sum(const Meeting& meeting, Index begin, T* into, Index count) {
    std::vector<const T*> parts;
    for (const void* data : meeting.data) parts.push_back(static_cast<const T*>(data) + begin);
    sum_in_rank_order(parts, into, count);
  }

  std::shared_ptr<LocalGroup> group_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(const std::string& name,
                                                                    int size,
                                                                    milliseconds timeout) {
  require(size >= 1, "a group of no ranks");
  std::vector<std::unique_ptr<Communicator>> result;
  if (size == 1) {
    result.push_back(make_solo_communicator(name));
    return result;
  }
  const auto group = std::make_shared<LocalGroup>(name, size, timeout);
  for (int rank = 0; rank < size; ++rank)
    result.push_back(
        make_cpu_communicator(name, rank, size, std::make_shared<LocalCollectives>(group, rank)));
  return result;
}

}  // namespace megatrain
