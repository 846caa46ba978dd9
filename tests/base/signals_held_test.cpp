#include "core/base/signals_held.h"

#include <gtest/gtest.h>

#include <thread>

namespace megatrain {
namespace {

sigset_t held_now() {
  sigset_t set;
  pthread_sigmask(SIG_SETMASK, nullptr, &set);
  return set;
}

bool holds(int signal) {
  const sigset_t set = held_now();
  return sigismember(&set, signal) == 1;
}

TEST(SignalsHeldTest, OnesWithinOthersGiveBackWhatWasHeldBefore) {
  ASSERT_FALSE(holds(SIGUSR1) || holds(SIGUSR2));
  {
    const SignalsHeld outer(signal_set({SIGUSR1}));
    {
      const SignalsHeld inner(signal_set({SIGUSR1, SIGUSR2}));
      EXPECT_TRUE(holds(SIGUSR1) && holds(SIGUSR2));
      EXPECT_EQ(sigismember(&inner.before(), SIGUSR1), 1);
      EXPECT_EQ(sigismember(&inner.before(), SIGUSR2), 0);
    }
    EXPECT_TRUE(holds(SIGUSR1)) << "the outer one still holds it";
    EXPECT_FALSE(holds(SIGUSR2));
  }
  EXPECT_FALSE(holds(SIGUSR1) || holds(SIGUSR2));
}

TEST(SignalsHeldTest, StartedThreadsStaySo) {
  std::thread started;
  bool held = false;
  {
    const SignalsHeld here(signal_set({SIGUSR2}));
    started = std::thread([&] { held = holds(SIGUSR2); });
  }
  started.join();
  EXPECT_TRUE(held);
  EXPECT_FALSE(holds(SIGUSR2));
}

}  // namespace
}  // namespace megatrain
