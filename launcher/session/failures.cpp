#include "launcher/session/failures.h"

#include <string>
#include <utility>

#include "core/base/error.h"

namespace megatrain::launcher {

void Failures::add(std::exception_ptr failure) {
  if (failure) all_.push_back(std::move(failure));
}

void Failures::collect(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error&) {
    add(std::current_exception());
  }
}

void Failures::rethrow() const {
  if (all_.empty()) return;
  if (all_.size() == 1) std::rethrow_exception(all_.front());
  std::string text;
  bool mendable = false;
  for (const std::exception_ptr& one : all_) {
    try {
      std::rethrow_exception(one);
    } catch (const Error& error) {
      if (text.empty())
        mendable = dynamic_cast<const UserError*>(&error) != nullptr;
      else
        text += "\nthen: ";
      text += error.what();
    }
  }
  if (mendable) throw UserError(text);
  throw Error(text);
}

}  // namespace megatrain::launcher
