#pragma once
/// @file
/// Keeps signal handlers out of the threads that compute. oneDNN's generated products (2.7's sgemm,
/// for one) move the stack pointer into a workspace on the heap: the frame of a handler that runs
/// there is written over whatever lies below that workspace.

#include <csignal>

namespace megatrain::cpu {

/// While it lives, this thread and every thread it starts hold all signals but those that tell of
/// the thread's own fault. The started ones stay so; signals sent to the process go to others.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t held;
    sigfillset(&held);
    // Held, these would end the process without their handler (a sanitizer's, a debugger's).
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
      sigdelset(&held, fault);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace megatrain::cpu
