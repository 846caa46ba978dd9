#include "io/joint_folder.h"

#include <fmt/format.h>

#include <random>

namespace megatrain::io {

namespace {

/// Says whose folder it is while several ranks fill it: one that a killed process left on a disk of
/// this machine's own may have the same name and the same files.
constexpr std::string_view kTokenName = "TOGETHER";

std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

void JointFolder::begin(const Act& make, const Act& join) {
  const std::vector<std::string> tokens = agree("made", [&]() -> std::string {
    if (!leads()) return {};
    made_.emplace(folder_, replace_);
    std::string token;
    if (peers_.size() > 1) write_file(path() / kTokenName, token = new_token());
    make();
    return token;
  });
  if (peers_.size() == 1) return;
  agree("joined", [&]() -> std::string {
    if (leads() || !join) return {};
    recognize(tokens.front());
    join();
    return {};
  });
}

void JointFolder::recognize(const std::string& token) const {
  std::string found;
  if (file_exists(path() / kTokenName)) found = read_whole_file(path() / kTokenName, 4096);
  if (found != token)
    throw UserError(
        fmt::format("{} is not there as rank 0 made it: all ranks that write into a folder must "
                    "see it, on a file system that they share",
                    path().string()));
}

std::vector<std::string> JointFolder::agree(std::string_view step,
                                            const std::function<std::string()>& act) {
  return io::agree(peers_, fmt::format("{}: {}", name_, step), act);
}

void JointFolder::commit(const Act& last) {
  agree("published", [&]() -> std::string {
    if (!leads()) return {};
    last();
    std::filesystem::remove(path() / kTokenName);
    made_->commit();
    return {};
  });
}

}  // namespace megatrain::io
