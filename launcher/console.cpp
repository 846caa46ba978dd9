#include "launcher/console.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/base/error.h"

namespace megatrain::launcher {

namespace {

constexpr double kSecondsBetweenLines = 1;

}  // namespace

struct Console::State {
  spdlog::logger out{"stdout", std::make_shared<spdlog::sinks::stdout_sink_mt>()};
  spdlog::logger err{"stderr", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};
  bool terminal = ::isatty(STDOUT_FILENO) != 0;
  std::string bar;  ///< what stands below the lines; empty: nothing

  void clear_bar() {
    if (!bar.empty()) std::fputs("\r\033[K", stdout);
  }
  void draw_bar() {
    std::fputs(bar.c_str(), stdout);
    std::fflush(stdout);
  }
};

Console::Console(bool quiet, bool bar) : state_(std::make_unique<State>()) {
  state_->terminal = state_->terminal && bar;
  if (quiet) {
    state_->terminal = false;
    state_->out.set_level(spdlog::level::off);
    state_->err.set_level(spdlog::level::off);
  }
  state_->out.set_pattern("%v");
  state_->out.flush_on(spdlog::level::info);
  state_->err.set_pattern("megatrain: %^%l%$: %v");
}

Console::~Console() {
  state_->clear_bar();
  std::fflush(stdout);
}

void Console::line(std::string_view text) {
  state_->clear_bar();
  state_->out.info(text);
  state_->draw_bar();
}

void Console::warning(std::string_view text) {
  state_->clear_bar();
  std::fflush(stdout);
  state_->err.warn(text);
  state_->draw_bar();
}

bool Console::is_terminal() const { return state_->terminal; }

void Console::progress(std::string_view what, double fraction) {
  if (!state_->terminal) return;
  constexpr int kWidth = 32;
  const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kWidth);
  const std::string bar =
      fraction >= 1
          ? std::string()
          : fmt::format("[{}{}] {:3.0f} %  {}", std::string(std::size_t(filled), '#'),
                        std::string(std::size_t(kWidth - filled), '.'), fraction * 100, what);
  if (bar == state_->bar) return;
  state_->clear_bar();
  state_->bar = bar;
  state_->draw_bar();
}

io::Progress Console::bytes_progress(std::string what) {
  return [this, what = std::move(what)](Index done, Index all) {
    progress(fmt::format("{}, {}", what, format_bytes(all)),
             all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 1);
  };
}

StepConsole::StepConsole(Console& console, Index steps, double peak_flops, bool every_step)
    : console_(console),
      steps_(steps),
      peak_flops_(peak_flops),
      every_step_(every_step),
      seconds_without_line_(kSecondsBetweenLines) {}

void StepConsole::step(const StepMetrics& m) {
  // The first steps warm up; the mean forgets them.
  seconds_per_step_ =
      seconds_per_step_ == 0 ? m.seconds : 0.9 * seconds_per_step_ + 0.1 * m.seconds;
  const double left = seconds_per_step_ * static_cast<double>(steps_ - m.step);
  const int digits = static_cast<int>(std::to_string(steps_).size());
  std::string text =
      fmt::format("step {:{}}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tok/s", m.step,
                  digits, steps_, m.loss, m.grad_norm, m.lr, m.tokens_per_second);
  if (peak_flops_ > 0)
    text += fmt::format("  MFU {:.1f} %", 100 * m.model_flops_per_second / peak_flops_);
  text += fmt::format("  host {}  device {}  left {}", format_bytes(m.host_bytes),
                      format_bytes(m.device_bytes), format_seconds(left));
  if (m.skipped) text += "  SKIPPED: the gradient is not finite";
  seconds_without_line_ += m.seconds;
  waiting_ = std::move(text);
  if (every_step_ || m.skipped || m.step == steps_ || seconds_without_line_ >= kSecondsBetweenLines)
    finish();
  console_.progress(fmt::format("step {}/{}, {} left", m.step, steps_, format_seconds(left)),
                    static_cast<double>(m.step) / static_cast<double>(steps_));
}

void StepConsole::finish() {
  if (waiting_.empty()) return;
  console_.line(waiting_);
  waiting_.clear();
  seconds_without_line_ = 0;
}

void StepConsole::evaluation(const EvaluationMetrics& metrics) {
  finish();
  console_.line(fmt::format("step {}  held-out loss {:.4f} over {} tokens", metrics.step,
                            metrics.loss, metrics.tokens));
}

void finish_output() {
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (flushed && std::ferror(stdout) == 0) return;
  pollfd reader{STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&reader, 1, 0) == 1 && (reader.revents & (POLLERR | POLLHUP)) != 0) return;
  throw Error(fmt::format("cannot write to standard output: {}",
                          flushed ? "some of it is lost" : std::strerror(error)));
}

std::string format_seconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  const auto whole = static_cast<Index>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}h {:02}m", whole / 3600, whole % 3600 / 60);
}

std::string precise_seconds(double seconds) {
  return seconds < 1 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

std::string format_flops(double flops) {
  constexpr std::array kUnits = {"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (flops >= 1000 && unit + 1 < kUnits.size()) {
    flops /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}FLOP/s", flops, kUnits[unit]);
}

}  // namespace megatrain::launcher
