#include "parallel/nccl/trouble_board.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace megatrain {

namespace {

using std::chrono::milliseconds;

class Deadline {
 public:
  explicit Deadline(milliseconds limit) : end_(std::chrono::steady_clock::now() + limit) {}
  [[nodiscard]] milliseconds left() const {
    const auto left = std::chrono::ceil<milliseconds>(end_ - std::chrono::steady_clock::now());
    return std::max(milliseconds(0), left);
  }

 private:
  std::chrono::steady_clock::time_point end_;
};

std::string list(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

TroubleBoard::TroubleBoard(std::shared_ptr<KeyValueStore> store, std::string name, int rank,
                           int size, milliseconds patience)
    : store_(std::move(store)),
      name_(std::move(name)),
      rank_(rank),
      size_(size),
      patience_(patience) {}

std::string TroubleBoard::key(std::string_view what) const {
  return fmt::format("nccl/{}/{}", name_, what);
}

std::string TroubleBoard::words_key(int of) const { return key(fmt::format("last words/{}", of)); }

// --- Before there is a communicator ---

void TroubleBoard::meet(milliseconds timeout) {
  const auto here = [&](int rank) { return key(fmt::format("here/{}", rank)); };
  store_->set(here(rank_), "");
  std::vector<std::string> all;
  for (int rank = 0; rank < size_; ++rank) all.push_back(here(rank));
  const KeyValueStore::Values found = store_->get_all(all, timeout);
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank)
    if (!found[static_cast<std::size_t>(rank)]) missing.push_back(rank);
  if (!missing.empty())
    throw PeerError(fmt::format("rank {} of {} waited {} to connect '{}': {} did not come", rank_,
                                size_, timeout, name_, list(missing)),
                    missing);
}

void TroubleBoard::publish(std::string_view value) { store_->set(key("published"), value); }

std::string TroubleBoard::read_published(milliseconds timeout) {
  if (auto value = store_->get(key("published"), timeout)) return std::move(*value);
  throw PeerError(fmt::format("rank {} of {} waited {} to connect '{}': rank 0 came, and then said "
                              "nothing",
                              rank_, size_, timeout, name_),
                  {0});
}

// --- When something goes wrong ---

std::optional<std::string> TroubleBoard::news() {
  std::optional<std::string> first;
  try {
    first = store_->get(key("ended"), milliseconds(0));
  } catch (const PeerError&) {
    throw;
  } catch (const std::exception&) {
    return {};  // the store may have gone with the rank that kept it
  }
  if (!first) return {};
  return fmt::format("rank {} found that something is wrong", *first);
}

PeerError TroubleBoard::explain(const std::string& what, const Progress& progress) {
  try {
    // First of all a sign of life: whoever says nothing is to blame.
    say({{}, progress, what});
    PeerError error = ask(what, progress);
    say({error.ranks(), progress, error.what()});
    return error;
  } catch (const PeerError& known) {
    return known;
  }
}

void TroubleBoard::mention(std::string_view what, const Progress& progress) noexcept {
  try {
    say({{}, progress, std::string(what)});
  } catch (const std::exception&) {
    return;  // then the store says it to all
  }
}

PeerError TroubleBoard::give_up(std::string_view reason, const Progress& progress) {
  try {
    say({{rank_}, progress, std::string(reason)});
  } catch (const PeerError& known) {
    return known;
  }
  return {fmt::format("ended by rank {}: {}", rank_, reason), {rank_}};
}

PeerError TroubleBoard::ask(const std::string& what, const Progress& progress) {
  std::vector<int> silent;
  std::vector<int> behind;
  Progress least = progress;
  const Deadline deadline(patience_);
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    const std::optional<Words> words = words_of(other, deadline.left());
    if (!words) {
      silent.push_back(other);
    } else if (!words->blamed.empty()) {
      return {fmt::format("{}; rank {} gave up: {}", what, other, words->text), words->blamed};
    } else if (words->progress <= least) {
      if (words->progress < least) behind.clear();
      least = words->progress;
      if (least < progress) behind.push_back(other);
    }
  }
  if (!silent.empty())
    return {fmt::format("{}; no sign of {}", what, list(silent)), std::move(silent)};
  if (!behind.empty())
    return {fmt::format("{}; {} came no further than call {} (this one made {})", what,
                        list(behind), least.reached, progress.issued),
            std::move(behind)};
  return {what, {}};
}

std::optional<TroubleBoard::Words> TroubleBoard::words_of(int rank, milliseconds patience) {
  std::optional<std::string> value;
  try {
    value = store_->get(words_key(rank), patience);
  } catch (const PeerError&) {
    throw;
  } catch (const std::exception&) {
    return {};
  }
  if (!value) return {};
  // A line of ranks, one of numbers, then the text.
  Words words;
  std::istringstream lines(*value);
  std::string ranks;
  std::string numbers;
  std::getline(lines, ranks);
  std::getline(lines, numbers);
  words.text = value->substr(std::min(value->size(), ranks.size() + numbers.size() + 2));
  std::istringstream blamed(ranks);
  for (int one = 0; blamed >> one;) words.blamed.push_back(one);
  std::istringstream(numbers) >> words.progress.reached >> words.progress.issued;
  return words;
}

void TroubleBoard::say(const Words& words) {
  try {
    store_->set(words_key(rank_),
                fmt::format("{}\n{} {}\n{}", fmt::join(words.blamed, " "), words.progress.reached,
                            words.progress.issued, words.text));
    store_->set(key("ended"), std::to_string(rank_));
  } catch (const PeerError&) {
    throw;
  } catch (const std::exception&) {
    return;  // as above
  }
}

}  // namespace megatrain
