#include "core/base/error.h"

namespace megatrain {

std::string Error::with_context(std::string_view context, std::string_view message) {
  std::string text(context);
  text += ": ";
  text += message;
  return text;
}

}  // namespace megatrain
