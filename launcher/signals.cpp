#include "launcher/signals.h"

#include <unistd.h>

#include <atomic>
#include <string_view>

namespace megatrain::launcher {

namespace {

constexpr std::array kStops = {SIGINT, SIGTERM, SIGHUP};

// A handler can reach nothing but a global.
std::atomic<bool> g_stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void say(std::string_view text) {
  // Only calls that are safe in a handler; if nobody hears it, nothing is lost.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

void handle(int signal) {
  if (g_stop_requested.exchange(true)) {
    say("\nmegatrain: stopped at once; the model is not saved\n");
    ::_exit(128 + signal);
  }
  say("\nmegatrain: stopping after this step and saving the model; once more to leave at once\n");
}

}  // namespace

StopSignals::StopSignals() {
  g_stop_requested = false;
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

bool StopSignals::stop_requested() const { return g_stop_requested; }

}  // namespace megatrain::launcher
