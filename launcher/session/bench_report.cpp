#include "launcher/session/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/json_writer.h"
#include "launcher/session/banner.h"

namespace megatrain::launcher {

namespace {

std::string gigabytes(double rate) { return fmt::format("{:.2f} GB/s", rate / 1e9); }

double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/// What a call does a second: FLOP or bytes.
double rate_of(const MeasuredCall& call) {
  const double work = call.work.product_flops + call.work.attention_flops + call.work.bytes;
  return work / call.seconds;
}

/// Its part, in percent, of all calls that do the same kind of work.
using Calls = std::span<const MeasuredCall>;

double share_of(const MeasuredCall& call, Calls calls) {
  for (double ops::Work::* part :
       {&ops::Work::product_flops, &ops::Work::attention_flops, &ops::Work::bytes})
    if (call.work.*part > 0)
      return share(static_cast<double>(call.count) * call.seconds, together(calls, part).seconds);
  return 0;
}

std::string call_line(const MeasuredCall& call, Calls calls) {
  const std::string what = call.op == "product"  ? call.pass
                           : call.pass == "head" ? "head " + call.op
                                                 : call.op;
  const double rate = rate_of(call);
  return fmt::format("  {:<20} {:<34} {:>4} x {:>10} {:>15} {:>4.0f} %\n", what, call.shape,
                     call.count, precise_seconds(call.seconds),
                     call.work.bytes > 0 ? gigabytes(rate) : format_flops(rate),
                     share_of(call, calls));
}

std::string call_lines(Calls calls, double ops::Work::* part) {
  std::string text;
  for (const MeasuredCall& call : calls)
    if (call.work.*part > 0) text += call_line(call, calls);
  return text;
}

void write_calls(io::JsonWriter& json, Calls calls, double ops::Work::* part) {
  json.key("calls").begin_array();
  for (const MeasuredCall& call : calls) {
    if (call.work.*part <= 0) continue;
    json.begin_object()
        .member("pass", call.pass)
        .member("op", call.op)
        .member("shape", call.shape)
        .member("count", call.count)
        .member("seconds", call.seconds)
        .member("rate", rate_of(call))
        .member("share_percent", share_of(call, calls))
        .end_object();
  }
  json.end_array();
}

void write_ceilings(io::JsonWriter& json, const BenchReport& report) {
  const Ceilings& c = report.ceilings;
  json.begin_object().member("micro_batch_tokens", report.measured_tokens);
  json.key("products").begin_object().member("flops_per_second", c.rates.flops);
  write_calls(json, c.calls, &ops::Work::product_flops);
  json.end_object();
  json.key("attention")
      .begin_object()
      .member("forward_flops_per_second", c.rates.attention)
      .member("backward_flops_per_second", c.rates.attention_backward);
  write_calls(json, c.calls, &ops::Work::attention_flops);
  json.end_object();
  json.key("element_wise").begin_object().member("bytes_per_second", c.rates.device_bandwidth);
  write_calls(json, c.calls, &ops::Work::bytes);
  json.end_object();
  json.key("slabs").begin_object().member("bytes_per_second", c.rates.slab_bandwidth);
  write_calls(json, c.slab_calls, &ops::Work::bytes);
  json.end_object();
  json.member("to_device_bytes_per_second", c.rates.to_device)
      .member("to_host_bytes_per_second", c.rates.to_host)
      .member("both_ways_bytes_per_second", c.copies.both_ways)
      .member("host_memory_bytes_per_second", c.rates.host_memory)
      .member("to_device_beside", c.rates.to_device_beside)
      .member("to_host_beside", c.rates.to_host_beside)
      .member("update_beside", c.rates.update_beside)
      .member("masters", megatrain::name(report.choices.master))
      .member("moments", megatrain::name(report.choices.moments))
      .member("update_elements_per_second", c.update.elements)
      .member("update_elements_per_second_fp32_moments", c.rates.update)
      .member("update_elements_per_second_bf16_moments", c.rates.update_bf16_moments)
      .member("update_with_bf16_masters", c.rates.update_bf16_masters)
      .member("update_bytes_per_second", c.update.bandwidth)
      .member("host_read_write_bytes_per_second", c.update.read_write)
      .member("update_of_read_write", c.update.of_bandwidth())
      .member("update_measured_bytes", c.update.bytes)
      .member("launch_seconds", c.rates.launch);
  json.key("disk_bytes_per_second");
  if (c.disk_measured)
    json.value(c.rates.disk);
  else
    json.null();
  json.end_object();
}

/// "exposed_transfer": a name as a key.
std::string key_of(std::string_view name) {
  std::string key(name);
  std::ranges::replace(key, ' ', '_');
  return key;
}

void write_shares(io::JsonWriter& json, const StepShares& shares) {
  json.begin_object().member("seconds", shares.breakdown.seconds);
  json.key("parts").begin_object();
  for (std::size_t p = 0; p < kStepParts; ++p)
    json.member(key_of(name(static_cast<StepPart>(p))), shares.breakdown.parts[p]);
  json.end_object();
  json.key("busy_seconds").begin_object();
  for (std::size_t s = 0; s < kStreams; ++s)
    json.member(name(static_cast<StreamId>(s)), shares.busy[s]);
  json.end_object();
  json.key("operation_seconds").begin_object();
  for (const auto& [operation, seconds] : shares.operations)
    json.member(key_of(operation), seconds);
  json.end_object().end_object();
}

void write_run(io::JsonWriter& json, const BenchReport& report, const BenchRun& run) {
  json.begin_object().member("warmup_steps", report.warmup_steps);
  json.key("seconds").begin_array();
  for (const double seconds : run.seconds) json.value(seconds);
  json.end_array()
      .member("median_seconds", run.median())
      .member("min_seconds", run.least())
      .member("max_seconds", run.most())
      .member("tokens_per_second", report.tokens_per_second())
      .member("model_flops_per_second", report.model_flops());
  json.key("mfu");
  if (report.peak > 0)
    json.value(report.model_flops() / report.peak);
  else
    json.null();
  json.member("of_ceiling", report.model_flops() / report.ceilings.rates.flops)
      .member("host_bytes", run.host_bytes)
      .member("device_bytes", run.device_bytes);
  json.key("host_store")
      .begin_object()
      .member("bytes", run.store_bytes)
      .member("touch_seconds", run.store_seconds.touch)
      .member("registration_seconds", run.store_seconds.registration)
      .member("of_touch", run.store_seconds.ratio())
      .end_object();
  json.end_object();
}

}  // namespace

StepShares step_shares(const Plan& plan, const Trace& trace, const Rates& rates) {
  StepShares shares;
  shares.breakdown = break_down(plan, trace, rates);
  for (std::size_t s = 0; s < kStreams; ++s) shares.busy[s] = trace.busy(static_cast<StreamId>(s));
  for (std::size_t n = 0; n < trace.spans.size(); ++n) {
    const std::string_view operation = name(plan.body.instructions[n].op);
    auto known = std::ranges::find(shares.operations, operation,
                                   [](const auto& entry) { return std::string_view(entry.first); });
    if (known == shares.operations.end())
      known = shares.operations.insert(known, {std::string(operation), 0});
    known->second += trace.spans[n].end - trace.spans[n].begin;
  }
  return shares;
}

double BenchReport::tokens_per_second() const {
  return static_cast<double>(choices.step_tokens()) / run->median();
}

double BenchReport::model_flops() const { return flops_per_token * tokens_per_second(); }

double BenchReport::prediction_error() const {
  return (prediction.step_seconds - run->median()) / run->median();
}

std::string ceilings_text(const BenchReport& report) {
  const Ceilings& c = report.ceilings;
  const Rates& r = c.rates;
  std::string text = fmt::format("ceilings, micro-batch of {} tokens:\n", report.measured_tokens);
  text += fmt::format("products           {}\n", format_flops(r.flops));
  text += call_lines(c.calls, &ops::Work::product_flops);
  text += fmt::format("attention          {} forward, {} backward\n", format_flops(r.attention),
                      format_flops(r.attention_backward));
  text += call_lines(c.calls, &ops::Work::attention_flops);
  text += fmt::format("element-wise       {}\n", gigabytes(r.device_bandwidth));
  text += call_lines(c.calls, &ops::Work::bytes);
  text += fmt::format("slabs              {}\n", gigabytes(r.slab_bandwidth));
  text += call_lines(c.slab_calls, &ops::Work::bytes);
  text += fmt::format("copies             {} to the device, {} to the host, {} both at once\n",
                      gigabytes(r.to_device), gigabytes(r.to_host), gigabytes(c.copies.both_ways));
  text += fmt::format(
      "AdamW on the host  {:.1f} million elements/s with masters in {}, moments in {}, {} of "
      "memory traffic, {:.2f} of the {} that {} of states are read and written with\n",
      c.update.elements / 1e6, name(report.choices.master), name(report.choices.moments),
      gigabytes(c.update.bandwidth), c.update.of_bandwidth(), gigabytes(c.update.read_write),
      format_bytes(c.update.bytes));
  text += fmt::format("all three at once  {:.2f}, {:.2f} and {:.2f} of that\n", r.to_device_beside,
                      r.to_host_beside, r.update_beside);
  text += fmt::format("launch             {:.2f} us", r.launch * 1e6);
  if (c.disk_measured) text += fmt::format("\ndisk               {}", gigabytes(r.disk));
  return text;
}

std::string steps_text(const BenchReport& report) {
  const BenchRun& run = *report.run;
  const double median = run.median();
  std::string text =
      fmt::format("step: median {} of {}, min {}, max {}, spread {:.1f} % of the median\n",
                  precise_seconds(median), run.seconds.size(), precise_seconds(run.least()),
                  precise_seconds(run.most()), share(run.most() - run.least(), median));
  text += fmt::format("speed: {:.0f} tokens/s, {} of the model, {:.3f} of the ceiling of products",
                      report.tokens_per_second(), format_flops(report.model_flops()),
                      report.model_flops() / report.ceilings.rates.flops);
  text += report.peak > 0
              ? fmt::format(", MFU {:.1f} % of {} ({})\n", share(report.model_flops(), report.peak),
                            format_flops(report.peak), report.peak_source)
              : ", MFU unknown (no data sheet; --peak)\n";
  text += fmt::format("predicted: {}, error {:+.1f} %, bound by {}\n",
                      precise_seconds(report.prediction.step_seconds),
                      100 * report.prediction_error(), bound_text(report.prediction));
  text += fmt::format("\n{:<20} {:>12} {:>10} {:>12}\n", "where a step went", "traced", "",
                      "predicted");
  const StepBreakdown& traced = report.traced.breakdown;
  const StepBreakdown& predicted = report.predicted.breakdown;
  const auto row = [&](std::string_view what, double a, double b) {
    text += fmt::format("{:<20} {:>12} {:>5.1f} %   {:>12} {:>5.1f} %\n", what, precise_seconds(a),
                        share(a, traced.seconds), precise_seconds(b), share(b, predicted.seconds));
  };
  for (std::size_t p = 0; p < kStepParts; ++p)
    row(name(static_cast<StepPart>(p)), traced.parts[p], predicted.parts[p]);
  row("whole step", traced.seconds, predicted.seconds);
  text += "\nstreams at work\n";
  for (std::size_t s = 0; s < kStreams; ++s)
    if (report.traced.busy[s] > 0 || report.predicted.busy[s] > 0)
      row(name(static_cast<StreamId>(s)), report.traced.busy[s], report.predicted.busy[s]);
  text.pop_back();
  return text;
}

std::string to_json(const BenchReport& report) {
  io::JsonWriter json(2);
  json.begin_object()
      .member("version", MEGATRAIN_VERSION)
      .member("model", report.model)
      .member("parameters", report.parameters)
      .member("device", name(report.device))
      .member("device_name", report.machine)
      .member("threads", report.threads.count)
      .member("compute", name(report.compute))
      .member("plan", report.plan)
      .member("sequence", report.choices.micro_batch.sequence)
      .member("step_tokens", report.choices.step_tokens())
      .member("micro_batch_tokens", report.choices.micro_batch.tokens())
      .member("model_flops_per_token", report.flops_per_token);
  json.key("pinned_to").begin_array();
  for (const int processor : report.threads.pinned()) json.value(static_cast<Index>(processor));
  json.end_array();
  json.key("peak_flops_per_second");
  if (report.peak > 0)
    json.value(report.peak);
  else
    json.null();
  json.key("ceilings");
  write_ceilings(json, report);
  json.key("predicted")
      .begin_object()
      .member("step_seconds", report.prediction.step_seconds)
      .member("bound_by", name(report.prediction.bound()));
  json.key("error_percent");
  if (report.run)
    json.value(100 * report.prediction_error());
  else
    json.null();
  json.key("where");
  write_shares(json, report.predicted);
  json.end_object();
  if (report.run) {
    json.key("steps");
    write_run(json, report, *report.run);
    json.key("traced");
    write_shares(json, report.traced);
  }
  return json.end_object().text() + "\n";
}

}  // namespace megatrain::launcher
