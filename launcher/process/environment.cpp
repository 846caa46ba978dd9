#include "launcher/process/environment.h"

#include <unistd.h>

#include <string_view>

namespace megatrain::launcher {

parallel::Environment program_environment() {
  parallel::Environment environment;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    const std::string_view text = *one;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

}  // namespace megatrain::launcher
