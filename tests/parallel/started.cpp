#include "tests/parallel/started.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

#include "parallel/rendezvous/socket.h"

namespace megatrain::parallel {

namespace {

/// No test waits for it to pass.
constexpr std::chrono::seconds kPatience{60};
constexpr std::chrono::milliseconds kGlance{10};

std::string new_file() {
  std::string path = testing::TempDir() + "/started-XXXXXX";
  ::close(::mkstemp(path.data()));
  return path;
}

}  // namespace

const std::string& rank_program() {
  static const std::string kPath = MEGATRAIN_RANK_PROGRAM;
  return kPath;
}

const std::string& megatrain_program() {
  static const std::string kPath = MEGATRAIN_PROGRAM;
  return kPath;
}

Started::Started(std::vector<std::string> command, const Environment& more) : file_(new_file()) {
  std::vector<std::string> variables{"PATH=" + std::string(std::getenv("PATH"))};
  if (const char* options = std::getenv("TSAN_OPTIONS"))
    variables.push_back(std::string("TSAN_OPTIONS=") + options);
  for (const auto& [name, value] : more) variables.push_back(name + "=" + value);
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  };
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, file_.c_str(), O_WRONLY | O_APPEND, 0);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  const int status = ::posix_spawnp(&process_, command.front().c_str(), &files, nullptr,
                                    pointers(command).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&files);
  EXPECT_EQ(status, 0) << command.front();
  if (status != 0) process_ = -1;
}

Started::Started(Started&& other) noexcept
    : process_(std::exchange(other.process_, -1)), file_(std::exchange(other.file_, {})) {}

Started::~Started() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  if (!file_.empty()) ::unlink(file_.c_str());
}

void Started::signal(int number) const { ::kill(process_, number); }

std::string Started::output() const {
  std::ifstream file(file_, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool Started::says(const std::string& words, int times) const {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    const std::string text = output();
    int count = 0;
    for (std::size_t at = text.find(words); at != std::string::npos;
         at = text.find(words, at + words.size()))
      ++count;
    if (count >= times) return true;
    std::this_thread::sleep_for(kGlance);
  }
  ADD_FAILURE() << "'" << words << "' did not come " << times << " times: " << output();
  return false;
}

int Started::wait() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  int status = 0;
  while (::waitpid(process_, &status, WNOHANG) != process_) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "it does not end: " << output();
      ::kill(process_, SIGKILL);
    }
    std::this_thread::sleep_for(kGlance);
  }
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Environment torchrun(int rank, int world, std::uint16_t port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(world)},
          {"GROUP_RANK", "0"},
          {"GROUP_WORLD_SIZE", "1"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}};
}

std::vector<Started> start_ranks(int count, int world, const std::vector<std::string>& command) {
  const std::uint16_t port = free_port();
  std::vector<Started> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.emplace_back(command, torchrun(rank, world, port));
  return ranks;
}

pid_t newest_process(const std::string& begins, const std::string& has) {
  pid_t newest = -1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::string command(std::istreambuf_iterator<char>(file), {});
    std::ranges::replace(command, '\0', ' ');
    if (!command.starts_with(begins) || command.find(has) == std::string::npos) continue;
    if (const pid_t process = std::stoi(name); runs(process)) newest = std::max(newest, process);
  }
  return newest;
}

bool runs(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t end = text.rfind(") ");
  return end != std::string::npos && text[end + 2] != 'Z' && text[end + 2] != 'X';
}

std::uint16_t free_port() { return port_of(listen_at("127.0.0.1", 0)); }

}  // namespace megatrain::parallel
