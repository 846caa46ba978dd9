#pragma once
/// @file
/// The environment that a rank of a test was started with.

#include <unistd.h>

#include <string_view>

#include "parallel/rendezvous/variables.h"

namespace megatrain::parallel {

inline Environment program_environment() {
  Environment result;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    const std::size_t equals = text.find('=');
    result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

}  // namespace megatrain::parallel
