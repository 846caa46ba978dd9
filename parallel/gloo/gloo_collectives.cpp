#include "parallel/gloo/gloo_collectives.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gloo/allgather.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "parallel/cpu/rank_order_sum.h"
#include "parallel/gloo/quiet_pipes.h"

namespace megatrain {

namespace {

using std::chrono::milliseconds;

/// Elements of a sum that each rank adds up at a time.
constexpr Index kPiece = 65536;
/// How long a rank in trouble waits for its peers to say that they are in trouble too.
class Deadline {
 public:
  [[nodiscard]] milliseconds left() const {
    const auto left = std::chrono::ceil<milliseconds>(end_ - std::chrono::steady_clock::now());
    return std::max(milliseconds(0), left);
  }

 private:
  std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(1);
};

/// A slot that no collective of Gloo's uses.
constexpr std::uint64_t kProbeSlot = std::uint64_t{0xFF} << 40;
/// What Gloo writes where this rank itself broke the connection.
constexpr std::string_view kOwnDoing = "Application timeout";

constexpr std::size_t at(Index value) { return static_cast<std::size_t>(value); }

std::uint32_t tag(const Call& call) { return static_cast<std::uint32_t>(call.number); }

std::string list(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

/// Keeps buffers on the list of what a thread may wait on.
class GlooCollectives::Guard {
 public:
  Guard(GlooCollectives& owner, std::initializer_list<Buffer*> buffers)
      : owner_(owner), buffers_(buffers) {
    const std::lock_guard lock(owner_.mutex_);
    owner_.in_flight_.insert(owner_.in_flight_.end(), buffers_.begin(), buffers_.end());
  }
  ~Guard() {
    const std::lock_guard lock(owner_.mutex_);
    for (Buffer* buffer : buffers_) owner_.in_flight_.remove(buffer);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  GlooCollectives& owner_;
  std::vector<Buffer*> buffers_;
};

GlooCollectives::GlooCollectives(std::shared_ptr<GlooMesh> mesh,
                                 std::shared_ptr<KeyValueStore> store, std::string name,
                                 std::function<void()> on_collective)
    : mesh_(std::move(mesh)),
      store_(std::move(store)),
      name_(std::move(name)),
      rank_(mesh_->rank),
      size_(mesh_->size),
      on_collective_(std::move(on_collective)),
      send_(at(kPiece * size_)),
      received_(at(kPiece * size_)) {}

void GlooCollectives::all_gather(const Call& call, const std::byte* slice, std::byte* whole) {
  run(call, [&] {
    const std::size_t bytes = at(call.count * size_of(call.type));
    std::byte* own = whole + at(rank_) * bytes;
    if (own != slice) std::memcpy(own, slice, bytes);
    gather_in_place(call, whole, bytes, mesh_->getTimeout());
  });
}

void GlooCollectives::reduce_scatter(const Call& call, const float* whole, float* slice) {
  run(call, [&] {
    for (Index first = 0; first < call.count; first += kPiece) {
      const Index count = std::min(kPiece, call.count - first);
      for (int rank = 0; rank < size_; ++rank)
        std::copy_n(whole + rank * call.count + first, count, send_.data() + rank * count);
      exchange_and_sum(call, slice + first, count);
    }
  });
}

void GlooCollectives::all_reduce(const Call& call, std::byte* data) {
  // bf16 travels as the fp32 that it is added up in, and every rank rounds the same sum.
  const bool wide = call.type == DType::f32;
  run(call, [&] {
    for (Index first = 0; first < call.count; first += kPiece * size_) {
      const Index count = std::min(kPiece * size_, call.count - first);
      const Index share = ceil_div(count, Index{size_});
      std::byte* piece = data + first * size_of(call.type);
      if (wide)
        std::memcpy(send_.data(), piece, at(count * 4));
      else
        std::transform(reinterpret_cast<const bfloat16*>(piece),
                       reinterpret_cast<const bfloat16*>(piece) + count, send_.data(), to_float);
      std::fill(send_.data() + count, send_.data() + share * size_, 0.0F);
      exchange_and_sum(call, send_.data() + rank_ * share, share);
      gather_in_place(call, reinterpret_cast<std::byte*>(send_.data()), at(share * 4),
                      mesh_->getTimeout());
      if (wide)
        std::memcpy(piece, send_.data(), at(count * 4));
      else
        std::transform(send_.data(), send_.data() + count, reinterpret_cast<bfloat16*>(piece),
                       to_bfloat16);
    }
  });
}

void GlooCollectives::broadcast(const Call& call, std::byte* data) {
  run(call, [&] {
    ::gloo::BroadcastOptions options(mesh_);
    auto buffer = mesh_->createUnboundBuffer(data, at(call.count * size_of(call.type)));
    const Guard guard(*this, {buffer.get()});
    options.setOutput<std::byte>(std::move(buffer));
    options.setRoot(call.root);
    options.setTag(tag(call));
    ::gloo::broadcast(options);
  });
}

void GlooCollectives::gather(const Call& call, std::span<const double> mine,
                             std::span<double> all) {
  run(call, [&] {
    std::ranges::copy(mine, all.begin() + static_cast<std::ptrdiff_t>(at(rank_) * mine.size()));
    gather_in_place(call, reinterpret_cast<std::byte*>(all.data()), mine.size_bytes(),
                    mesh_->getTimeout());
  });
}

void GlooCollectives::barrier(const Call& call, milliseconds deadline) {
  // Nobody has a value of every rank before every rank is there. Gloo's own barrier waits on a
  // buffer that abort() could not reach.
  run(call, [&] {
    std::vector<double> all(at(size_));
    gather_in_place(call, reinterpret_cast<std::byte*>(all.data()), sizeof(double), deadline);
  });
}

void GlooCollectives::gather_in_place(const Call& call, std::byte* whole, std::size_t bytes,
                                      milliseconds deadline) {
  ::gloo::AllgatherOptions options(mesh_);
  auto buffer = mesh_->createUnboundBuffer(whole, bytes * at(size_));
  const Guard guard(*this, {buffer.get()});
  options.setOutput<std::byte>(std::move(buffer));
  options.setTag(tag(call));
  options.setTimeout(deadline);
  ::gloo::allgather(options);
}

void GlooCollectives::exchange_and_sum(const Call& call, float* sum, Index count) {
  {
    ::gloo::AlltoallOptions options(mesh_);
    auto in = mesh_->createUnboundBuffer(send_.data(), at(count * size_ * 4));
    auto out = mesh_->createUnboundBuffer(received_.data(), at(count * size_ * 4));
    const Guard guard(*this, {in.get(), out.get()});
    options.setInput<float>(std::move(in));
    options.setOutput<float>(std::move(out));
    options.setTag(tag(call));
    ::gloo::alltoall(options);
  }
  std::vector<const float*> parts;
  for (int rank = 0; rank < size_; ++rank) parts.push_back(received_.data() + rank * count);
  sum_in_rank_order(parts, sum, count);
}

// --- When something goes wrong ---

void GlooCollectives::run(const Call& call, const std::function<void()>& body) {
  const QuietPipes quiet;
  const auto check = [&] {
    const std::lock_guard lock(mutex_);
    if (failure_)
      throw PeerError(fmt::format("{} of '{}': {}", describe(call), name_, failure_->what()),
                      failure_->ranks());
  };
  check();
  if (on_collective_) on_collective_();
  try {
    body();
  } catch (const std::exception& error) {
    check();  // woken, not hit
    fail(call, error.what());
  }
  check();  // a wait that is woken looks to Gloo like one that is done
}

void GlooCollectives::fail(const Call& call, const std::string& what) {
  const std::string where = fmt::format("{} of '{}'", describe(call), name_);
  PeerError error(fmt::format("rank {} was not answered: {}", rank_, what), {});
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
  }
  try {
    // First of all a sign of life: whoever says nothing is to blame.
    say_last_words({{}, fmt::format("{}: {}", where, error.what())});
    const std::vector<int> lost = lost_peers();
    shut_down();
    if (!lost.empty()) error = explain(what, lost);
    if (error.ranks().empty()) error = ask_all(error);
    say_last_words({error.ranks(), fmt::format("{}: {}", where, error.what())});
  } catch (const PeerError& known) {
    shut_down();
    error = known;
  }
  {
    const std::lock_guard lock(mutex_);
    failure_ = error;
  }
  throw PeerError(fmt::format("{}: {}", where, error.what()), error.ranks());
}

PeerError GlooCollectives::explain(const std::string& what, const std::vector<int>& lost) {
  // Who was killed says nothing; those that it takes along do.
  std::vector<int> without_a_word;
  std::optional<PeerError> gave_up;
  const Deadline deadline;
  for (const int other : lost) {
    const auto words = last_words(other, deadline.left());
    if (!words)
      without_a_word.push_back(other);
    else if (!gave_up || gave_up->ranks().empty())
      gave_up = PeerError(fmt::format("rank {} gave up: {}", other, words->text), words->ranks);
  }
  if (without_a_word.empty()) return *gave_up;
  return {fmt::format("rank {} lost {}, without a word: {}", rank_, list(without_a_word), what),
          without_a_word};
}

PeerError GlooCollectives::ask_all(const PeerError& error) {
  std::vector<int> silent;
  const Deadline deadline;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    const auto words = last_words(other, deadline.left());
    if (!words)
      silent.push_back(other);
    else if (!words->ranks.empty())
      return {fmt::format("rank {} gave up: {}", other, words->text), words->ranks};
  }
  // Somebody is late, not gone: whoever was there has found the same and said so.
  if (silent.empty()) return error;
  return {fmt::format("{}; no sign of {}", error.what(), list(silent)), silent};
}

std::string GlooCollectives::last_words_key(int of) const {
  return fmt::format("gloo/{}/last words/{}", name_, of);
}

std::vector<int> GlooCollectives::lost_peers() {
  std::vector<int> lost;
  double nothing = 0;
  const auto probe = mesh_->createUnboundBuffer(&nothing, sizeof nothing);
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    try {
      probe->recv(other, kProbeSlot);
    } catch (const std::exception& error) {
      if (std::string_view(error.what()).find(kOwnDoing) == std::string_view::npos)
        lost.push_back(other);
    }
  }
  return lost;
}

std::optional<GlooCollectives::LastWords> GlooCollectives::last_words(int of,
                                                                      milliseconds patience) {
  try {
    const auto value = store_->get(last_words_key(of), patience);
    if (!value) return {};
    // A line of ranks, then the text.
    std::istringstream lines(*value);
    std::string first;
    std::getline(lines, first);
    LastWords words{.ranks = {}, .text = value->substr(std::min(value->size(), first.size() + 1))};
    std::istringstream ranks(first);
    for (int rank = 0; ranks >> rank;) words.ranks.push_back(rank);
    return words;
  } catch (const PeerError&) {
    throw;
  } catch (const std::exception&) {
    return {};  // the store may have gone with the rank that kept it
  }
}

void GlooCollectives::say_last_words(const LastWords& words) {
  try {
    store_->set(last_words_key(rank_),
                fmt::format("{}\n{}", fmt::join(words.ranks, " "), words.text));
  } catch (const PeerError&) {
    throw;
  } catch (const std::exception&) {
    return;  // as above; the others see the connection end
  }
}

void GlooCollectives::abort(std::string_view reason) noexcept {
  const auto has_failed = [&] {
    const std::lock_guard lock(mutex_);
    return failure_.has_value();
  };
  if (has_failed()) return;
  PeerError error(fmt::format("ended by rank {}: {}", rank_, reason), {rank_});
  try {
    say_last_words({{rank_}, std::string(reason)});
  } catch (const PeerError& known) {
    error = known;
  }
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = error;
  }
  shut_down();
}

void GlooCollectives::close_connections() noexcept {
  try {
    // A wait that times out is how Gloo closes all connections of a context and tells those who
    // wait on them; it has no other call that does both.
    double nothing = 0;
    mesh_->createUnboundBuffer(&nothing, sizeof nothing)->waitRecv(milliseconds(1));
  } catch (const std::exception&) {
    return;  // the time-out itself
  }
}

void GlooCollectives::shut_down() noexcept {
  close_connections();
  // That does not tell those whose transfer is half done.
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (in_flight_.empty()) return;
      for (Buffer* buffer : in_flight_) {
        buffer->abortWaitRecv();
        buffer->abortWaitSend();
      }
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace megatrain
