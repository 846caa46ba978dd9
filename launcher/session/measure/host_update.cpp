#include "launcher/session/measure/host_update.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/host_memory.h"
#include "core/base/processors.h"
#include "core/optim/read_write.h"
#include "core/store/host_arena.h"
#include "launcher/session/measure/timing.h"

namespace megatrain::launcher {

namespace {

constexpr Index kQuarters = 4;
/// So long, as several rounds of those that are measured alone.
constexpr double kRounds = 4;

/// Arenas as a host store has them, so that their pages and their places are alike.
class States {
 public:
  States(const Machine& machine, const StateFormats& formats, ThreadPool& pool, Index bytes)
      : pool_(pool),
        type_(machine.compute),
        formats_(formats),
        elements_(round_up(ceil_div(bytes, bytes_each()), kQuarters * kUpdatePiece)),
        weights_(arena(machine, size_of(type_))),
        remainder_(arena(machine, remainder_bytes(formats_.master))),
        first_(arena(machine, size_of(formats_.moments))),
        second_(arena(machine, size_of(formats_.moments))),
        gradient_(arena(machine, size_of(type_))) {
    // About 1/100 in both types: of zeros nothing would be computed.
    const Index piece_bytes = kUpdatePiece * size_of(type_);
    pool.for_each(elements_ / kUpdatePiece, [&](Index piece) {
      std::memset(gradient_.data() + piece * piece_bytes, 0x3C,
                  static_cast<std::size_t>(piece_bytes));
    });
  }

  [[nodiscard]] Index bytes() const { return elements_ * bytes_each(); }
  [[nodiscard]] Index quarter() const { return elements_ / kQuarters; }
  /// Where the quarter begins whose turn it is.
  [[nodiscard]] Index next() { return turns_++ % kQuarters * quarter(); }
  [[nodiscard]] Index traffic() const {
    return ops::adamw_traffic(formats_.master, formats_.moments, type_);
  }

  void update(Index begin) {
    adamw_update(slice(begin), adamw_coefficients({}, 1e-4, 1, 1, true), pool_);
  }
  void read_and_write(Index begin) { megatrain::read_and_write(slice(begin), pool_); }

 private:
  [[nodiscard]] Index bytes_each() const {
    return master_bytes(formats_.master) + 2 * size_of(formats_.moments) + size_of(type_);
  }
  HostArena arena(const Machine& machine, Index each) {
    return {"measurement", elements_ * each, *machine.device, pool_};
  }
  [[nodiscard]] AdamWSlice slice(Index begin) const {
    const AdamWSlice all{.count = elements_,
                         .weights = weights_.data(),
                         .remainder = reinterpret_cast<std::int16_t*>(remainder_.data()),
                         .exp_avg = first_.data(),
                         .exp_avg_sq = second_.data(),
                         .gradient = gradient_.data(),
                         .gradient_type = type_,
                         .moment_type = formats_.moments,
                         .master = formats_.master};
    return all.part(begin, quarter());
  }

  ThreadPool& pool_;
  DType type_;
  StateFormats formats_;
  Index elements_;
  Index turns_ = 0;
  HostArena weights_, remainder_, first_, second_, gradient_;
};

States make_states(const Machine& machine, const StateFormats& formats, ThreadPool& pool) {
  return {machine, formats, pool,
          measured_bytes(last_level_cache(affinity_mask()), pool.threads(),
                         available_host_memory().available)};
}

}  // namespace

Index measured_bytes(Index caches, int threads, Index available) {
  constexpr Index kEach = Index{128} << 20;
  constexpr Index kEnough = Index{4} << 30;
  const Index wanted = std::max(4 * caches, std::min(kEach * threads, kEnough));
  return std::max(std::min(wanted, available / 8), Index{1});
}

double measure_update(const Machine& machine, const StateFormats& formats, ThreadPool& pool,
                      double least_seconds) {
  States states = make_states(machine, formats, pool);
  const std::vector<double> seconds = seconds_of_calls(
      std::array{Repeated{[&] { states.update(states.next()); }, least_seconds}}, [] {});
  return static_cast<double>(states.quarter()) / seconds[0];
}

HostUpdate measure_host_update(const Machine& machine, ThreadPool& pool, Copies& copies,
                               double least_seconds) {
  States states = make_states(machine, {machine.master, machine.moments}, pool);
  const auto turn = [&](auto work) { (states.*work)(states.next()); };
  const auto in_turn = [&](auto work) {
    return Repeated{[&, work] { turn(work); }, least_seconds};
  };
  const std::vector<double> seconds = seconds_of_calls(
      std::array{in_turn(&States::update), in_turn(&States::read_and_write)}, [] {});
  const auto elements = static_cast<double>(states.quarter());
  const double bytes = elements * static_cast<double>(states.traffic());
  const Copies::Beside beside =
      copies.beside([&] { turn(&States::update); }, kRounds * least_seconds);
  return {.elements = elements / seconds[0],
          .bandwidth = bytes / seconds[0],
          .read_write = bytes / seconds[1],
          .bytes = states.bytes(),
          .elements_beside = elements * beside.calls,
          .copies = beside};
}

}  // namespace megatrain::launcher
