#pragma once
/// @file
/// Words for error messages that quote what a file says.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"

namespace megatrain::io {

/// `text` in single quotes, cut to a readable length, bytes that could disturb a terminal replaced:
/// names in messages come from files that may be hostile.
std::string quote(std::string_view text);

/// "[2, 3]"; at most the first 16 dimensions.
std::string shape_text(const std::vector<Index>& shape);

/// Bytes of the valid UTF-8 sequence at the start of `text`, 0 when there is none (RFC 3629).
std::size_t utf8_length(std::string_view text);

}  // namespace megatrain::io
