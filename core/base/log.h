#pragma once
/// @file
/// The core's one way to say something to a person. The program installs a sink (console, file);
/// without one, messages go to stderr. Progress and metrics have interfaces of their own.

#include <functional>
#include <memory>
#include <string_view>

namespace megatrain {

enum class LogLevel { debug, info, warning, error };

/// Where messages go. Called from any thread, one call at a time.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// A value that components keep a copy of; copies share one sink. There is no global logger.
class Logger {
 public:
  /// Writes warnings and errors to stderr.
  Logger();
  explicit Logger(LogSink sink);

  void debug(std::string_view message) const { write(LogLevel::debug, message); }
  void info(std::string_view message) const { write(LogLevel::info, message); }
  void warning(std::string_view message) const { write(LogLevel::warning, message); }
  void error(std::string_view message) const { write(LogLevel::error, message); }

 private:
  void write(LogLevel level, std::string_view message) const;

  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace megatrain
