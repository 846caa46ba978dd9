#include "launcher/metrics_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "io/folder.h"
#include "io/json.h"

namespace megatrain::launcher {

namespace {

/// Lines that are none of ours stay.
bool stays(const std::string& line, const KeptLines& keep) {
  try {
    const io::JsonValue value = io::parse_json(line, "metrics");
    const io::JsonValue* member = value.find("step");
    const auto* step = member == nullptr ? nullptr : member->as<std::int64_t>();
    if (step == nullptr || *step < keep.until) return true;
    return *step == keep.until && (keep.evaluation || value.find("val_loss") == nullptr);
  } catch (const UserError&) {
    return true;
  }
}

}  // namespace

MetricsFile::MetricsFile(std::filesystem::path path, const KeptLines& keep)
    : path_(std::move(path)) {
  const int truncate = keep.until > 0 ? 0 : O_TRUNC;
  descriptor_ =
      io::FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | truncate | O_CLOEXEC, 0666));
  if (descriptor_.get() < 0) io::throw_system_error("create", path_, errno);
  if (keep.until > 0) cut_behind(keep);
}

void MetricsFile::cut_behind(const KeptLines& keep) {
  // Steps only grow from line to line, and an evaluation comes last of its step: the file is cut
  // before the first line that goes, or behind the last whole one.
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line) && !file.eof();) {
    if (!stays(line, keep)) break;
    end_ += std::ssize(line) + 1;
  }
  if (::ftruncate(descriptor_.get(), end_) != 0) io::throw_system_error("cut", path_, errno);
}

void MetricsFile::step(const StepMetrics& metrics) {
  io::JsonWriter json;
  json.begin_object()
      .member("step", metrics.step)
      .member("tokens", metrics.tokens)
      .member("loss", metrics.loss)
      .member("grad_norm", metrics.grad_norm)
      .member("lr", metrics.lr)
      .member("tokens_per_s", metrics.tokens_per_second)
      .member("host_bytes", metrics.host_bytes)
      .member("device_bytes", metrics.device_bytes);
  if (metrics.skipped) json.member("skipped", true);
  append(json.end_object().text() + "\n");
}

void MetricsFile::evaluation(const EvaluationMetrics& metrics) {
  io::JsonWriter json;
  json.begin_object()
      .member("step", metrics.step)
      .member("val_loss", metrics.loss)
      .member("val_tokens", metrics.tokens)
      .end_object();
  append(json.text() + "\n");
}

void MetricsFile::check_there() const {
  if (!io::is_name_of(path_, descriptor_))
    throw UserError(fmt::format(
        "{} was removed or replaced during the run, and what it said is lost", path_.string()));
}

void MetricsFile::append(std::string_view line) {
  Index at = end_;
  while (!line.empty()) {
    const ssize_t count = ::pwrite(descriptor_.get(), line.data(), line.size(), at);
    if (count < 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      [[maybe_unused]] const int cut = ::ftruncate(descriptor_.get(), end_);
      io::throw_system_error("write", path_, error);
    }
    line.remove_prefix(static_cast<std::size_t>(count));
    at += count;
  }
  end_ = at;
}

}  // namespace megatrain::launcher
