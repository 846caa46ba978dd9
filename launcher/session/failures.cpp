#include "launcher/session/failures.h"

#include <utility>

namespace megatrain::launcher {

void throw_like(const Error& like, const std::string& text) {
  if (dynamic_cast<const UserError*>(&like) != nullptr) throw UserError(text);
  throw Error(text);
}

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
  for (const std::exception_ptr& one : all_) {
    try {
      std::rethrow_exception(one);
    } catch (const Error& error) {
      if (!text.empty()) text += "\nthen: ";
      text += error.what();
    }
  }
  try {
    std::rethrow_exception(all_.front());
  } catch (const Error& first) {
    throw_like(first, text);
  }
}

}  // namespace megatrain::launcher
