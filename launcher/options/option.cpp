#include "launcher/options/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace megatrain::launcher {

namespace {

template <class Number>
Number parse_number(std::string_view text, std::string_view where, std::string_view kind) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc{} || rest != end)
    throw UserError(fmt::format("{}: '{}' is not {}", where, text, kind));
  return number;
}

/// Reads one text as a value of a target's type.
struct Parser {
  std::string_view text;
  std::string_view where;

  void operator()(bool& out) const {
    if (text != "true" && text != "false")
      throw UserError(fmt::format("{}: '{}' is neither true nor false", where, text));
    out = text == "true";
  }
  void operator()(Index& out) const { out = parse_number<Index>(text, where, "a whole number"); }
  void operator()(std::uint64_t& out) const {
    out = parse_number<std::uint64_t>(text, where, "a whole number of at least 0");
  }
  void operator()(double& out) const {
    out = parse_number<double>(text, where, "a number");
    if (!std::isfinite(out))
      throw UserError(fmt::format("{}: '{}' is not a finite number", where, text));
  }
  void operator()(std::string& out) const { out = text; }
  void operator()(ByteCount& out) const {
    try {
      out.bytes = parse_bytes(text);
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}: {}", where, error.what()));
    }
  }
  template <class T>
  void operator()(std::optional<T>& out) const {
    (*this)(out.emplace());
  }
};

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(Index value) { return std::to_string(value); }
std::string text_of(std::uint64_t value) { return std::to_string(value); }
/// The shortest text that reads back as the same number.
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(const std::string& value) { return value; }
std::string text_of(ByteCount value) { return std::to_string(value.bytes); }

void check_range(const Option& option, std::string_view where) {
  const auto check = [&](double value) {
    if (option.least && value < *option.least)
      throw UserError(
          fmt::format("{}: {} is too small; it must be at least {}", where, value, *option.least));
    if (option.most && value > *option.most)
      throw UserError(
          fmt::format("{}: {} is too large; it can be at most {}", where, value, *option.most));
    if (option.below && value >= *option.below)
      throw UserError(
          fmt::format("{}: {} is too large; it must be below {}", where, value, *option.below));
  };
  std::visit(
      [&]<class T>(T* target) {
        if constexpr (std::is_same_v<T, Index> || std::is_same_v<T, double>)
          check(static_cast<double>(*target));
        else if constexpr (std::is_same_v<T, std::optional<Index>> ||
                           std::is_same_v<T, std::optional<double>>)
          check(static_cast<double>(**target));
        else if constexpr (std::is_same_v<T, std::optional<ByteCount>>)
          check(static_cast<double>((*target)->bytes));
      },
      option.target);
}

}  // namespace

bool is_flag(const Option& option) { return std::holds_alternative<bool*>(option.target); }

bool is_list(const Option& option) {
  return std::holds_alternative<std::vector<std::string>*>(option.target);
}

bool is_bare(const Option& option) {
  return !std::holds_alternative<std::string*>(option.target) &&
         !std::holds_alternative<std::optional<std::string>*>(option.target) && !is_list(option);
}

void set(const Option& option, std::span<const std::string> texts, std::string_view where) {
  for (const std::string& text : texts)
    if (!option.allowed.empty() && std::ranges::find(option.allowed, text) == option.allowed.end())
      throw UserError(fmt::format("{}: '{}' is not known; it takes {}", where, text,
                                  fmt::join(option.allowed, ", ")));
  std::visit(
      [&]<class T>(T* target) {
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          target->assign(texts.begin(), texts.end());
        } else {
          if (texts.size() != 1)
            throw UserError(fmt::format("{}: takes one value, not {}", where, texts.size()));
          Parser{texts.front(), where}(*target);
        }
      },
      option.target);
  check_range(option, where);
}

std::optional<std::vector<std::string>> texts(const Option& option) {
  return std::visit(
      []<class T>(const T* target) -> std::optional<std::vector<std::string>> {
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          if (target->empty()) return std::nullopt;
          return *target;
        } else if constexpr (requires { target->has_value(); }) {
          if (!target->has_value()) return std::nullopt;
          return std::vector{text_of(**target)};
        } else {
          if constexpr (std::is_same_v<T, std::string>)
            if (target->empty()) return std::nullopt;
          return std::vector{text_of(*target)};
        }
      },
      option.target);
}

}  // namespace megatrain::launcher
