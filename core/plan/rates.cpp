#include "core/plan/rates.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <fstream>

namespace megatrain {

namespace {

enum class Unit : std::uint8_t { flops, bytes, elements, seconds };

struct Field {
  std::string_view name;
  double Rates::* value;
  Unit unit;
};

constexpr std::array<Field, 7> kFields = {
    {{"flops", &Rates::flops, Unit::flops},
     {"device_bandwidth", &Rates::device_bandwidth, Unit::bytes},
     {"to_device", &Rates::to_device, Unit::bytes},
     {"to_host", &Rates::to_host, Unit::bytes},
     {"update", &Rates::update, Unit::elements},
     {"launch", &Rates::launch, Unit::seconds},
     {"disk", &Rates::disk, Unit::bytes}}};

std::string with_unit(double value, Unit unit) {
  switch (unit) {
    case Unit::flops:
      return fmt::format("{:.4g} GFLOP/s", value / 1e9);
    case Unit::bytes:
      return format_bytes(static_cast<Index>(value)) + "/s";
    case Unit::elements:
      return fmt::format("{:.4g} million elements/s", value / 1e6);
    case Unit::seconds:
      return fmt::format("{:.4g} us", value * 1e6);
  }
  return "?";
}

/// A rate that predictions can divide by: no unit of it comes near the bound.
bool is_usable(double rate) { return rate > 0 && rate < 1e18; }

}  // namespace

Rates assumed_rates(DeviceKind kind, DType compute) {
  Rates rates;
  if (kind == DeviceKind::cuda) {
    rates.flops = compute == DType::bf16 ? 600e12 : 40e12;
    rates.device_bandwidth = 3e12;
    rates.to_device = rates.to_host = 50e9;
    rates.update = 3e9;
    rates.launch = 20e-6;
    rates.disk = 2e9;
  } else {
    rates.flops = 100e9;
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
  for (const Field& field : kFields)
    if (rates.*(field.value) == 0)
      throw UserError(fmt::format("{} lacks '{}'; write it anew with megatrain bench",
                                  file.string(), field.name));
  return rates;
}

std::string format_rates(const Rates& rates) {
  std::string text;
  for (const Field& field : kFields)
    text += fmt::format("{} = {:.6g}\n", field.name, rates.*(field.value));
  return text;
}

std::string describe(const Rates& rates) {
  std::string text;
  for (const Field& field : kFields)
    text += fmt::format("{:<17} {}\n", field.name, with_unit(rates.*(field.value), field.unit));
  return text;
}

}  // namespace megatrain
