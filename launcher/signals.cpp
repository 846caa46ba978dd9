#include "launcher/signals.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <string_view>

#include "launcher/exit_codes.h"

namespace megatrain::launcher {

namespace {

constexpr std::array kStops = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

// A handler can reach nothing but globals: when the first signal came, in milliseconds, or 0; those
// that ask for something, a bit each; whether there is something to save, and whether all is over.
std::atomic<std::int64_t> g_first_time = 0;
std::atomic<unsigned> g_asked = 0;
std::atomic<bool> g_training = false;
std::atomic<bool> g_over = false;
static_assert(std::atomic<bool>::is_always_lock_free &&
              std::atomic<unsigned>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);

constexpr unsigned bit(int signal) { return 1U << static_cast<unsigned>(signal); }

bool asks_to_requeue(int signal) { return signal == SIGTERM || signal == SIGUSR1; }

std::int64_t milliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void say(std::string_view text) {
  // Only calls that are safe in a handler; if nobody hears it, nothing is lost.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

constexpr std::string_view kStopping =
    "\nmegatrain: stopping after this step, then saving; once more to leave at once\n";
constexpr std::string_view kOver =
    "\nmegatrain: ending, because a rank has failed; nothing more is saved\n";

void handle(int signal) {
  if (!g_training && g_over) {
    say(kOver);
    ::_exit(kFailed);
  }
  if (!g_training) {
    say("\nmegatrain: ended before training began\n");
    ::_exit(asks_to_requeue(signal) ? kRequeue : code_of_signal(signal));
  }
  if (!g_over) g_asked |= bit(signal);
  const std::int64_t now = milliseconds();
  std::int64_t first = 0;
  if (g_first_time.compare_exchange_strong(first, now)) return say(g_over ? kOver : kStopping);
  constexpr std::int64_t kSameMoment = 1000;
  if (now - first < kSameMoment) return;
  say("\nmegatrain: stopped at once; what was not saved is lost\n");
  ::_exit(code_of_signal(signal));
}

}  // namespace

StopSignals::StopSignals() {
  g_first_time = 0;
  g_asked = 0;
  g_training = false;
  g_over = false;
  struct sigaction action{};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kStops.size(); ++i) {
    sigaction(kStops[i], &action, &before_[i]);
    // nohup's wish stands.
    if (kStops[i] == SIGHUP && before_[i].sa_handler == SIG_IGN)
      sigaction(kStops[i], &before_[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kStops.size(); ++i) sigaction(kStops[i], &before_[i], nullptr);
}

void StopSignals::training_begins() { g_training = true; }

void StopSignals::run_is_over() { g_over = true; }

bool StopSignals::stop_requested() const { return g_asked != 0; }

bool StopSignals::stop_requested(int signal) const { return (g_asked & bit(signal)) != 0; }

bool StopSignals::requeue_requested() const {
  return stop_requested(SIGTERM) || stop_requested(SIGUSR1);
}

}  // namespace megatrain::launcher
