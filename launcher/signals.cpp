#include "launcher/signals.h"

#include <unistd.h>

#include <atomic>
#include <string_view>

namespace megatrain::launcher {

namespace {

constexpr std::array kStops = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

// A handler can reach nothing but a global: the first signal that came, or 0.
std::atomic<int> g_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void say(std::string_view text) {
  // Only calls that are safe in a handler; if nobody hears it, nothing is lost.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

void handle(int signal) {
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, signal)) {
    say("\nmegatrain: stopped at once; what was not saved is lost\n");
    ::_exit(128 + signal);
  }
  say("\nmegatrain: stopping after this step, then saving; once more to leave at once\n");
}

}  // namespace

StopSignals::StopSignals() {
  g_signal = 0;
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

bool StopSignals::stop_requested() const { return g_signal != 0; }

bool StopSignals::requeue_requested() const {
  const int signal = g_signal;
  return signal == SIGTERM || signal == SIGUSR1;
}

}  // namespace megatrain::launcher
