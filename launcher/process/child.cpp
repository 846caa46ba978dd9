#include "launcher/process/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/base/error.h"
#include "launcher/process/pipe.h"

namespace megatrain::launcher {

namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Between fork and exec: only calls that are safe there, for other threads stand still in the
/// midst of anything. @returns the system's error when the program cannot be run
int become(const char* program, char* const* argv, char* const* envp, int out, int err,
           pid_t parent, const sigset_t& blocked) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || ::dup2(nothing, STDIN_FILENO) < 0 || ::dup2(out, STDOUT_FILENO) < 0 ||
      ::dup2(err, STDERR_FILENO) < 0)
    return errno;
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &standard, nullptr);
  ::sigaction(SIGXFSZ, &standard, nullptr);
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  ::execve(program, argv, envp);
  return errno;
}

void set_non_blocking(const io::FileDescriptor& descriptor) {
  ::fcntl(descriptor.get(), F_SETFL, O_NONBLOCK);
}

}  // namespace

std::string describe(const Ending& ending) {
  return ending.signal != 0
             ? fmt::format("signal {} ({})", ending.signal, ::strsignal(ending.signal))
             : fmt::format("exit code {}", ending.code);
}

std::string find_program(const std::string& name, const parallel::Environment& environment) {
  if (name.find('/') != std::string::npos) return name;
  const auto path = environment.find("PATH");
  std::string_view folders = "/usr/bin:/bin";
  if (path != environment.end()) folders = path->second;
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    std::string file = fmt::format("{}/{}", end == 0 ? "." : folders.substr(0, end), name);
    if (::access(file.c_str(), X_OK) == 0) return file;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  throw UserError(fmt::format(
      "'{}' is neither a command of megatrain nor a program in the folders of PATH", name));
}

Child::Child(const std::string& program, const std::vector<std::string>& arguments,
             const parallel::Environment& environment, const sigset_t& blocked, Guard& guard)
    : guard_(guard) {
  std::vector<std::string> words = arguments;
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment)
    variables.push_back(fmt::format("{}={}", name, value));
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(variables);
  Pipe out;
  Pipe err;
  Pipe failure;
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ < 0)
    throw Error("cannot start a process: " + std::generic_category().message(errno));
  if (process_ == 0) {
    const int error = become(program.c_str(), argv.data(), envp.data(), out.to.get(), err.to.get(),
                             parent, blocked);
    [[maybe_unused]] const ssize_t told = ::write(failure.to.get(), &error, sizeof error);
    ::_exit(127);
  }
  ::setpgid(process_, process_);  // whoever is first; a signal to the group must not miss it
  guard_.add(process_);
  failure.to.close();
  int error = 0;
  if (::read(failure.from.get(), &error, sizeof error) == sizeof error) {
    ::waitpid(process_, nullptr, 0);
    guard_.remove(process_);
    throw UserError(
        fmt::format("cannot run {}: {}", program, std::generic_category().message(error)));
  }
  out_ = std::move(out.from);
  err_ = std::move(err.from);
  set_non_blocking(out_);
  set_non_blocking(err_);
}

Child::~Child() {
  // The process is not waited for before this, so that its number, which is the group's too, cannot
  // have become another's.
  ::kill(-process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  guard_.remove(process_);
}

void Child::signal(int number) const {
  if (running_) ::kill(-process_, number);
}

std::optional<Ending> Child::ended() {
  siginfo_t info{};
  if (!running_ ||
      ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != process_)
    return std::nullopt;
  running_ = false;
  if (info.si_code == CLD_EXITED) return Ending{info.si_status, 0};
  return Ending{0, info.si_status};
}

}  // namespace megatrain::launcher
