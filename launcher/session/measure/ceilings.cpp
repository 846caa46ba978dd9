#include "launcher/session/measure/ceilings.h"

#include <algorithm>

#include "launcher/session/measure/copies.h"
#include "launcher/session/measure/disk.h"
#include "launcher/session/measure/timing.h"

namespace megatrain::launcher {

namespace {

/// Long enough for clocks and caches to settle.
constexpr double kLeastSeconds = 0.1;

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
                          ThreadPool& pool, const std::optional<std::filesystem::path>& disk,
                          int gpus) {
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
  ceilings.slab_calls = measure_slab_calls(machine, model, choices);
  rates.slab_bandwidth =
      together(ceilings.slab_calls, &ops::Work::bytes).rate(rates.slab_bandwidth);
  {
    Copies copies(*machine.device, pool);
    ceilings.copies = copies.alone(kLeastSeconds);
    ceilings.update = measure_host_update(machine, pool, copies, kLeastSeconds);
  }
  // Runs that keep their states otherwise read the same file.
  const auto update_rate = [&](const StateFormats& formats) {
    return formats == StateFormats{machine.master, machine.moments}
               ? ceilings.update.elements
               : measure_update(machine, formats, pool, kLeastSeconds);
  };
  const MasterFormat whole = whole_masters(machine.compute);
  rates.update = update_rate({whole, DType::f32});
  rates.update_bf16_moments = update_rate({whole, DType::bf16});
  if (machine.compute == DType::bf16)
    rates.update_bf16_masters = update_rate({MasterFormat::bf16, machine.moments}) /
                                rates.update_of(whole, machine.moments);
  rates.to_device = ceilings.copies.to_device;
  rates.to_host = ceilings.copies.to_host;
  const auto part = [](double beside, double alone) { return std::min(beside / alone, 1.0); };
  rates.to_device_beside = part(ceilings.update.copies.to_device, rates.to_device);
  rates.to_host_beside = part(ceilings.update.copies.to_host, rates.to_host);
  rates.update_beside = part(ceilings.update.elements_beside, ceilings.update.elements);
  if (gpus > 1) rates.host_memory = measure_host_memory(gpus, kLeastSeconds);
  rates.launch = measure_launch(machine);
  if (disk) {
    rates.disk = measure_disk(*disk);
    ceilings.disk_measured = true;
  }
  return ceilings;
}

}  // namespace megatrain::launcher
