#pragma once
/// @file
/// One option of a command: its name, its words, and where its value goes. The same table of
/// options makes --help, reads the command line and the TOML file, and writes the resolved
/// configuration.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/types.h"

namespace megatrain::launcher {

/// A size in bytes, so that it can be spelled 8GiB.
struct ByteCount {
  Index bytes = 0;
  bool operator==(const ByteCount&) const = default;
};

/// The field that an option fills. An optional one stays empty when the option is not given.
using OptionTarget =
    std::variant<bool*, Index*, std::uint64_t*, double*, std::string*, std::vector<std::string>*,
                 std::optional<std::string>*, std::optional<Index>*, std::optional<double>*,
                 std::optional<ByteCount>*>;

struct Option {
  std::string name;   ///< "seq-len"; --seq-len on the command line, seq-len in the file
  std::string group;  ///< headline in --help
  std::string value;  ///< what it takes, for --help: "TOKENS"
  std::string help;   ///< with the unit, without the default
  OptionTarget target;
  std::vector<std::string> allowed = {};       ///< empty: anything
  std::optional<double> least = std::nullopt;  ///< of a number, or of bytes
  std::optional<double> most = std::nullopt;   ///< of a number, or of bytes
  std::optional<double> below = std::nullopt;  ///< of a number, or of bytes: what it must not reach
  bool required = false;
  bool in_file = true;      ///< may stand in the TOML file, and does in the resolved configuration
  bool decisive = false;    ///< decides what is learned: a resumed run must repeat it
  bool positional = false;  ///< given by its place on the command line, without its name
};

[[nodiscard]] bool is_flag(const Option& option);
[[nodiscard]] bool is_list(const Option& option);

/// Gives the option its value(s). @param where  for messages: "--steps", "run.toml line 3: steps"
/// @throws UserError when a text is no such value
void set(const Option& option, std::span<const std::string> texts, std::string_view where);

/// The current value, as set() reads it; one text a list element. nullopt: not given.
std::optional<std::vector<std::string>> texts(const Option& option);

/// Whether its values are written without quotes in TOML.
[[nodiscard]] bool is_bare(const Option& option);

}  // namespace megatrain::launcher
