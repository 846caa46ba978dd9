#include "launcher/process/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace megatrain::launcher {

namespace {

constexpr std::size_t kLastLines = 20;
/// A longer line is shown in pieces.
constexpr std::size_t kLongestLine = 16384;

}  // namespace

RankOutput::RankOutput(const std::optional<std::filesystem::path>& file, LineSink sink)
    : sink_(std::move(sink)) {
  if (!file) return;
  file_ = io::FileDescriptor(
      ::open(file->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (file_.get() < 0) io::throw_system_error("create", *file, errno);
}

void RankOutput::take(OutputStream stream, std::string_view bytes) {
  if (file_.get() >= 0) {
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const ssize_t count = ::write(file_.get(), rest.data(), rest.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        // The rank's work counts for more than its log.
        line(OutputStream::err, "megatrain: its log file cannot be written any more");
        file_ = io::FileDescriptor();
        break;
      }
      rest.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  std::string& text = begun(stream);
  for (const char byte : bytes) {
    if (byte != '\n') text += byte;
    if (byte != '\n' && text.size() < kLongestLine) continue;
    line(stream, text);
    text.clear();
  }
}

void RankOutput::finish() {
  for (const OutputStream stream : {OutputStream::out, OutputStream::err}) {
    std::string& text = begun(stream);
    if (!text.empty()) line(stream, text);
    text.clear();
  }
}

std::string RankOutput::last_lines() const {
  std::string text;
  for (const std::string& one : last_) text += one + '\n';
  return text;
}

void RankOutput::line(OutputStream stream, std::string_view text) {
  last_.emplace_back(text);
  if (last_.size() > kLastLines) last_.pop_front();
  sink_(stream, text);
}

}  // namespace megatrain::launcher
