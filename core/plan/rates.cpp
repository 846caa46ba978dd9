#include "core/plan/rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

#include "core/ops/adamw.h"

namespace megatrain {

namespace {

struct Field {
  std::string_view name;
  double Rates::* value;
  double Rates::* otherwise = nullptr;  ///< what stands for it in files that lack it
  bool of_ranks = false;                ///< files that lack it have the assumed one
};

constexpr std::array<Field, 18> kFields = {
    {{"flops", &Rates::flops},
     {"attention", &Rates::attention, &Rates::flops},
     {"attention_backward", &Rates::attention_backward, &Rates::flops},
     {"device_bandwidth", &Rates::device_bandwidth},
     {"slab_bandwidth", &Rates::slab_bandwidth, &Rates::device_bandwidth},
     {"to_device", &Rates::to_device},
     {"to_host", &Rates::to_host},
     {"update", &Rates::update},
     {"update_bf16_moments", &Rates::update_bf16_moments, &Rates::update},
     {"update_bf16_masters", &Rates::update_bf16_masters},  // 1 where it is lacking
     {"to_device_beside", &Rates::to_device_beside},
     {"to_host_beside", &Rates::to_host_beside},
     {"update_beside", &Rates::update_beside},
     {"launch", &Rates::launch},
     {"disk", &Rates::disk},
     {"peers", &Rates::peers, nullptr, true},
     {"network", &Rates::network, nullptr, true},
     {"host_memory", &Rates::host_memory, nullptr, true}}};

/// Of GPUs with NVLink, a network link of 400 Gbit/s each, and a host whose memory serves four GPUs
/// at 35 GB/s each.
void assume_ranks(Rates& rates) {
  rates.peers = 300e9;
  rates.network = 45e9;
  rates.host_memory = 140e9;
}

/// What predictions can divide by: no rate, part or duration comes near the bounds.
constexpr double kSmallest = 1e-12;
constexpr double kLargest = 1e18;
bool is_usable(double rate) { return rate >= kSmallest && rate <= kLargest; }

}  // namespace

Rates assumed_rates(DeviceKind kind, DType compute) {
  Rates rates;
  if (kind == DeviceKind::cuda) {
    // What `megatrain bench` finds on an H200 beside 16 cores (docs/benchmarks).
    rates.flops = compute == DType::bf16 ? 660e12 : 40e12;
    rates.attention = compute == DType::bf16 ? 600e12 : 20e12;
    rates.attention_backward = compute == DType::bf16 ? 420e12 : 20e12;
    rates.device_bandwidth = rates.slab_bandwidth = 3.3e12;
    rates.to_device = rates.to_host = 54e9;
    rates.update = 5e9;
    // By the bytes that it reads and writes, which is what it takes the time of there.
    const auto traffic = [&](MasterFormat master, DType moments) {
      return static_cast<double>(ops::adamw_traffic(master, moments, compute));
    };
    const MasterFormat whole = whole_masters(compute);
    rates.update_bf16_moments =
        rates.update * traffic(whole, DType::f32) / traffic(whole, DType::bf16);
    rates.update_bf16_masters =
        traffic(whole, DType::f32) / traffic(MasterFormat::bf16, DType::f32);
    rates.to_device_beside = 0.58;
    rates.to_host_beside = 0.86;
    rates.update_beside = 0.72;
    rates.launch = 4e-6;
    rates.disk = 2e9;
    assume_ranks(rates);
  } else {
    rates.flops = 100e9;
    rates.attention = rates.attention_backward = 50e9;
    rates.device_bandwidth = rates.slab_bandwidth = 10e9;
    rates.to_device = rates.to_host = 5e9;
    rates.update = rates.update_bf16_moments = 0.4e9;
    rates.launch = 5e-6;
    rates.disk = 1e9;
    rates.peers = rates.network = 1e9;
    rates.host_memory = 10e9;
  }
  return rates;
}

Rates read_rates(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw UserError(fmt::format("cannot read the rates file {}", file.string()));
  Rates rates;
  rates.source = file.string();
  assume_ranks(rates);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    const auto equals = line.find(" = ");
    const std::string_view key = std::string_view(line).substr(0, equals);
    const Field* known = nullptr;
    for (const Field& field : kFields)
      if (field.name == key) known = &field;
    double value = 0;
    const char* begin = equals == std::string::npos ? nullptr : line.data() + equals + 3;
    const char* end = line.data() + line.size();
    const bool parsed = begin != nullptr && std::from_chars(begin, end, value).ptr == end;
    if (known == nullptr || !parsed)
      throw UserError(
          fmt::format("{} line {}: '{}' is not 'name = number' of a rate; write it anew "
                      "with megatrain bench",
                      file.string(), number, line));
    if (!is_usable(value))
      throw UserError(
          fmt::format("{} line {}: {} is {}; it must be in [{}, {}]. Write it anew with megatrain "
                      "bench",
                      file.string(), number, key, value, kSmallest, kLargest));
    rates.*(known->value) = value;
  }
  for (const Field& field : kFields) {
    double& rate = rates.*(field.value);
    if (rate == 0 && field.otherwise != nullptr) rate = rates.*(field.otherwise);
    if (rate == 0)
      throw UserError(fmt::format("{} lacks '{}'; write it anew with megatrain bench",
                                  file.string(), field.name));
  }
  return rates;
}

Rates shared_by(Rates rates, Index ranks) {
  if (ranks == 1) return rates;
  const auto share = static_cast<double>(ranks);
  rates.to_device = std::min(rates.to_device, rates.host_memory / share);
  rates.to_host = std::min(rates.to_host, rates.host_memory / share);
  rates.update /= share;
  rates.update_bf16_moments /= share;
  return rates;
}

std::string format_rates(const Rates& rates) {
  std::string text;
  for (const Field& field : kFields)
    if (rates.*(field.value) > 0)
      text += fmt::format("{} = {:.6g}\n", field.name, rates.*(field.value));
  return text;
}

}  // namespace megatrain
