#include "core/base/log.h"

#include <cstdio>
#include <mutex>

namespace megatrain {

struct Logger::Shared {
  std::mutex mutex;
  LogSink sink;
};

Logger::Logger()
    : Logger([](LogLevel level, std::string_view message) {
        if (level >= LogLevel::warning)
          std::fprintf(stderr, "%.*s\n", static_cast<int>(message.size()), message.data());
      }) {}

Logger::Logger(LogSink sink) : shared_(std::make_shared<Shared>()) {
  shared_->sink = std::move(sink);
}

void Logger::write(LogLevel level, std::string_view message) const {
  const std::lock_guard lock(shared_->mutex);
  shared_->sink(level, message);
}

}  // namespace megatrain
