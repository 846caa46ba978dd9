#include "tests/launcher/program.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace megatrain::launcher {

namespace {

/// Milliseconds without any output after which a program counts as hanging. It is then killed.
constexpr int kPatience = 120'000;

}  // namespace

Program::Program(const std::vector<std::string>& arguments, Index file_limit) {
  std::vector<char*> argv{const_cast<char*>(MEGATRAIN_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (::pipe(out.data()) != 0 || ::pipe(err.data()) != 0) throw std::runtime_error("pipe");
  process_ = ::fork();
  if (process_ < 0) throw std::runtime_error("fork");
  if (process_ == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    for (const int end : {out[0], out[1], err[0], err[1]}) ::close(end);
    const rlimit limit{static_cast<rlim_t>(file_limit), static_cast<rlim_t>(file_limit)};
    if (file_limit > 0) ::setrlimit(RLIMIT_FSIZE, &limit);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

Program::~Program() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  ::close(out_);
  ::close(err_);
}

void Program::signal(int number) const { ::kill(process_, number); }

Outcome Program::wait() {
  Outcome outcome;
  std::array<pollfd, 2> open{{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};
  const std::array<std::string*, 2> texts{&outcome.out, &outcome.err};
  for (int left = 2; left > 0;) {
    if (::poll(open.data(), open.size(), kPatience) == 0) ::kill(process_, SIGKILL);
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (open[i].fd < 0 || open[i].revents == 0) continue;
      std::array<char, 4096> piece{};
      const ssize_t count = ::read(open[i].fd, piece.data(), piece.size());
      if (count > 0) {
        texts[i]->append(piece.data(), static_cast<std::size_t>(count));
      } else {
        open[i].fd = -1;
        --left;
      }
    }
  }
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

std::string program_path() { return MEGATRAIN_PROGRAM; }

Outcome run_program(const std::vector<std::string>& arguments, Index file_limit) {
  return Program(arguments, file_limit).wait();
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  return lines;
}

}  // namespace megatrain::launcher
