#include "launcher/process/guard.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "launcher/process/pipe.h"

namespace megatrain::launcher {

namespace {

/// @param words  a pipe of groups: positive ones came, negative ones are gone
[[noreturn]] void watch(int words) {
  ::setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::signal(signal, SIG_IGN);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int standard = 0; standard < 3; ++standard) ::dup2(nothing, standard);
  std::vector<pid_t> groups;
  for (;;) {
    pid_t word = 0;
    const ssize_t count = ::read(words, &word, sizeof word);
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof word) break;
    if (word > 0)
      groups.push_back(word);
    else
      std::erase(groups, -word);
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  ::_exit(0);
}

}  // namespace

Guard::Guard() {
  Pipe words;
  process_ = ::fork();
  if (process_ < 0) throw Error("cannot start a process");
  if (process_ == 0) {
    words.to.close();  // or its end would never come
    watch(words.from.get());
  }
  pipe_ = std::move(words.to);
}

Guard::~Guard() {
  pipe_.close();
  ::waitpid(process_, nullptr, 0);
}

void Guard::add(pid_t group) { tell(group); }

void Guard::remove(pid_t group) { tell(-group); }

void Guard::tell(pid_t word) {
  // Whole or not at all, as a pipe takes so few bytes. Without its guard the launch goes on.
  [[maybe_unused]] const ssize_t count = ::write(pipe_.get(), &word, sizeof word);
}

}  // namespace megatrain::launcher
