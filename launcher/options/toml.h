#pragma once
/// @file
/// The part of TOML 1.0 that a configuration needs: tables, and keys with strings, numbers,
/// booleans or one-line-or-more arrays of them. Whatever else a file holds is refused by line.

#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"

namespace megatrain::launcher {

struct TomlEntry {
  std::string table;  ///< "" before the first header
  std::string key;
  std::vector<std::string> values;  ///< strings without quotes, escapes resolved; else as written
  bool array = false;
  int line = 0;
};

/// @param source  the file, for messages
/// @throws UserError naming source and line for bad syntax and for a key that is given twice
std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view source);

/// `text` as a basic string, quotes included.
std::string toml_string(std::string_view text);

}  // namespace megatrain::launcher
