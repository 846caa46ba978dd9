#include "launcher/session/measure/ceilings.h"

#include "core/store/host_arena.h"
#include "launcher/session/measure/disk.h"
#include "launcher/session/measure/timing.h"

namespace megatrain::launcher {

namespace {

/// Long enough for clocks and caches to settle.
constexpr double kLeastSeconds = 0.1;

/// Copies of the size of a large unit.
void measure_copies(Machine& machine, ThreadPool& pool, Ceilings& ceilings) {
  const Index bytes = machine.kind == DeviceKind::cuda ? Index{256} << 20 : Index{64} << 20;
  const auto down = machine.device->make_stream("measurement down");
  const auto up = machine.device->make_stream("measurement up");
  const auto memory = machine.device->allocate(2 * bytes);
  const HostArena host("measurement", 2 * bytes, *machine.device, pool);
  const auto to_device = [&] { down->copy(memory->data(), host.data(), bytes); };
  const auto to_host = [&] { up->copy(host.data() + bytes, memory->data() + bytes, bytes); };
  const auto both = [&] {
    to_device();
    to_host();
  };
  const auto wait = [&] {
    down->synchronize();
    up->synchronize();
  };
  const auto size = static_cast<double>(bytes);
  ceilings.rates.to_device = size / seconds_a_call(to_device, wait, kLeastSeconds);
  ceilings.rates.to_host = size / seconds_a_call(to_host, wait, kLeastSeconds);
  ceilings.both_ways = 2 * size / seconds_a_call(both, wait, kLeastSeconds);
}

/// What the issuing thread pays for a small op, its event and a wait for it.
double measure_launch(Machine& machine) {
  const auto stream = machine.device->make_stream("measurement");
  const auto other = machine.device->make_stream("measurement 2");
  const auto event = machine.device->make_event();
  const auto memory = machine.device->allocate(256);
  const auto enqueue = [&] {
    stream->fill(memory->data(), 0, 256);
    stream->record(*event);
    other->wait(*event);
  };
  const auto wait = [&] {
    stream->synchronize();
    other->synchronize();
  };
  return seconds_a_call(enqueue, wait, kLeastSeconds);
}

}  // namespace

Ceilings measure_ceilings(Machine& machine, const Model& model, const Choices& choices,
                          ThreadPool& pool, const std::optional<std::filesystem::path>& disk) {
  Ceilings ceilings;
  Rates& rates = ceilings.rates;
  rates = assumed_rates(machine.kind, machine.compute);
  rates.source = "measured";
  ceilings.calls = measure_calls(machine, model, choices);
  rates.flops = together(ceilings.calls, &ops::Work::product_flops).rate(rates.flops);
  rates.attention =
      together(ceilings.calls, &ops::Work::attention_flops, "attention").rate(rates.attention);
  rates.attention_backward =
      together(ceilings.calls, &ops::Work::attention_flops, "attention backward")
          .rate(rates.attention_backward);
  rates.device_bandwidth = together(ceilings.calls, &ops::Work::bytes).rate(rates.device_bandwidth);
  measure_copies(machine, pool, ceilings);
  ceilings.update = measure_host_update(machine, pool, kLeastSeconds);
  rates.update = ceilings.update.elements;
  rates.launch = measure_launch(machine);
  if (disk) {
    rates.disk = measure_disk(*disk);
    ceilings.disk_measured = true;
  }
  return ceilings;
}

}  // namespace megatrain::launcher
