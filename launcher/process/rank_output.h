#pragma once
/// @file
/// What a rank prints: to a log file as it is, to the screen by lines with the rank before each.

#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "io/file.h"

namespace megatrain::launcher {

enum class OutputStream { out, err };

/// Takes a line without its end.
using LineSink = std::function<void(OutputStream, std::string_view)>;

class RankOutput {
 public:
  /// @param file  is written anew; its folder exists
  /// @throws UserError when the file cannot be written
  RankOutput(const std::optional<std::filesystem::path>& file, LineSink sink);

  void take(OutputStream stream, std::string_view bytes);
  /// Hands on a last line without an end.
  void finish();
  /// The last 20 lines of both streams, each with its end.
  [[nodiscard]] std::string last_lines() const;

 private:
  void line(OutputStream stream, std::string_view text);
  std::string& begun(OutputStream stream) { return stream == OutputStream::out ? out_ : err_; }

  io::FileDescriptor file_;
  LineSink sink_;
  std::string out_, err_;  ///< lines that have not ended yet
  std::deque<std::string> last_;
};

}  // namespace megatrain::launcher
