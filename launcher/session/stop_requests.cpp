#include "launcher/session/stop_requests.h"

#include <csignal>

#include "launcher/exit_codes.h"

namespace megatrain::launcher {

namespace {

constexpr unsigned kStop = 1, kRequeueAsked = 2, kInterrupted = 4, kHungUp = 8;

}  // namespace

bool StopRequests::stop(bool failed) {
  const unsigned own = (failed || signals_.stop_requested() ? kStop : 0U) |
                       (signals_.requeue_requested() ? kRequeueAsked : 0U) |
                       (signals_.stop_requested(SIGINT) ? kInterrupted : 0U) |
                       (signals_.stop_requested(SIGHUP) ? kHungUp : 0U);
  asked_ |= team_.any("stop", own);
  return (asked_ & kStop) != 0;
}

bool StopRequests::requeue() const { return (asked_ & kRequeueAsked) != 0; }

int StopRequests::exit_code() const {
  if (requeue()) return kRequeue;
  if ((asked_ & kInterrupted) != 0) return code_of_signal(SIGINT);
  return (asked_ & kHungUp) != 0 ? code_of_signal(SIGHUP) : kDone;
}

}  // namespace megatrain::launcher
