#include "core/plan/rates.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <fstream>

namespace megatrain {

namespace {

struct Field {
  std::string_view name;
  double Rates::* value;
  double Rates::* otherwise = nullptr;  ///< what stands for it in files that lack it
};

constexpr std::array<Field, 9> kFields = {
    {{"flops", &Rates::flops},
     {"attention", &Rates::attention, &Rates::flops},
     {"attention_backward", &Rates::attention_backward, &Rates::flops},
     {"device_bandwidth", &Rates::device_bandwidth},
     {"to_device", &Rates::to_device},
     {"to_host", &Rates::to_host},
     {"update", &Rates::update},
     {"launch", &Rates::launch},
     {"disk", &Rates::disk}}};

/// A rate that predictions can divide by: no unit of it comes near the bound.
bool is_usable(double rate) { return rate > 0 && rate < 1e18; }

}  // namespace

Rates assumed_rates(DeviceKind kind, DType compute) {
  Rates rates;
  if (kind == DeviceKind::cuda) {
    rates.flops = compute == DType::bf16 ? 600e12 : 40e12;
    rates.attention = compute == DType::bf16 ? 400e12 : 20e12;
    rates.attention_backward = compute == DType::bf16 ? 300e12 : 20e12;
    rates.device_bandwidth = 3e12;
    rates.to_device = rates.to_host = 50e9;
    rates.update = 3e9;
    rates.launch = 5e-6;
    rates.disk = 2e9;
  } else {
    rates.flops = 100e9;
    rates.attention = rates.attention_backward = 50e9;
    rates.device_bandwidth = 10e9;
    rates.to_device = rates.to_host = 5e9;
    rates.update = 0.4e9;
    rates.launch = 5e-6;
    rates.disk = 1e9;
  }
  return rates;
}

Rates read_rates(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw UserError(fmt::format("cannot read the rates file {}", file.string()));
  Rates rates;
  rates.source = file.string();
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
          fmt::format("{} line {}: {} is {}; it must be above 0 and finite. Write it anew with "
                      "megatrain bench",
                      file.string(), number, key, value));
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

std::string format_rates(const Rates& rates) {
  std::string text;
  for (const Field& field : kFields)
    text += fmt::format("{} = {:.6g}\n", field.name, rates.*(field.value));
  return text;
}

}  // namespace megatrain
