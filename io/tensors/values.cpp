#include "io/tensors/values.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace megatrain::io {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// An 8-bit float: sign, exponent, mantissa.
struct SmallFloat {
  int mantissa_bits;
  int bias;
  enum class Special { ieee, all_ones_is_nan, negative_zero_is_nan } special;
};

double decode(std::uint8_t raw, const SmallFloat& format) {
  const int mantissa_range = 1 << format.mantissa_bits;
  const int mantissa = raw & (mantissa_range - 1);
  const int exponent = (raw & 0x7F) >> format.mantissa_bits;
  const double sign = (raw & 0x80) != 0 ? -1.0 : 1.0;
  switch (format.special) {
    case SmallFloat::Special::ieee:
      if (exponent == 0x7F >> format.mantissa_bits)
        return mantissa != 0 ? kNan : sign * std::numeric_limits<double>::infinity();
      break;
    case SmallFloat::Special::all_ones_is_nan:
      if ((raw & 0x7F) == 0x7F) return kNan;
      break;
    case SmallFloat::Special::negative_zero_is_nan:
      if (raw == 0x80) return kNan;
      break;
  }
  const int significand = exponent == 0 ? mantissa : mantissa_range + mantissa;
  const int power = (exponent == 0 ? 1 : exponent) - format.bias - format.mantissa_bits;
  return sign * std::ldexp(significand, power);
}

double decode_e8m0(std::uint8_t raw) { return raw == 0xFF ? kNan : std::ldexp(1.0, raw - 127); }

/// values[i] = convert(element i), elements of type Raw.
template <typename Raw, typename Convert>
void each(std::span<const std::byte> bytes, std::span<double> values, Convert convert) {
  require(bytes.size() == values.size() * sizeof(Raw), "to_doubles: size");
  for (std::size_t i = 0; i < values.size(); ++i) {
    Raw raw;
    std::memcpy(&raw, bytes.data() + i * sizeof(Raw), sizeof(Raw));
    values[i] = convert(raw);
  }
}

template <typename Number>
void each_number(std::span<const std::byte> bytes, std::span<double> values) {
  each<Number>(bytes, values, [](Number raw) { return static_cast<double>(raw); });
}

void each_small(std::span<const std::byte> bytes, std::span<double> values,
                const SmallFloat& format) {
  each<std::uint8_t>(bytes, values, [&](std::uint8_t raw) { return decode(raw, format); });
}

void each_float(FileType type, std::span<const std::byte> bytes, std::span<double> values) {
  constexpr std::size_t kAtOnce = 8192;
  std::array<float, kAtOnce> floats;
  const auto width = static_cast<std::size_t>(bits_of(type) / 8);
  require(bytes.size() == values.size() * width, "to_doubles: size");
  for (std::size_t first = 0; first < values.size(); first += kAtOnce) {
    const std::span<float> part(floats.data(), std::min(kAtOnce, values.size() - first));
    to_floats(type, bytes.subspan(first * width, part.size() * width), part);
    for (std::size_t i = 0; i < part.size(); ++i) values[first + i] = static_cast<double>(part[i]);
  }
}

template <typename Number>
std::string number_text(std::span<const std::byte> element) {
  Number number;
  require(element.size() == sizeof(number), "value_text: size");
  std::memcpy(&number, element.data(), sizeof(number));
  return fmt::format("{}", number);
}

}  // namespace

bool converts_to_double(FileType type) {
  switch (type) {
    case FileType::f4:
    case FileType::f6_e2m3:
    case FileType::f6_e3m2:
    case FileType::c64:
      return false;
    default:
      return true;
  }
}

void to_doubles(FileType type, std::span<const std::byte> bytes, std::span<double> values) {
  using Special = SmallFloat::Special;
  switch (type) {
    case FileType::f32:
    case FileType::f16:
    case FileType::bf16:
      return each_float(type, bytes, values);
    case FileType::f64:
      return each_number<double>(bytes, values);
    case FileType::boolean:
    case FileType::u8:
      return each_number<std::uint8_t>(bytes, values);
    case FileType::i8:
      return each_number<std::int8_t>(bytes, values);
    case FileType::u16:
      return each_number<std::uint16_t>(bytes, values);
    case FileType::i16:
      return each_number<std::int16_t>(bytes, values);
    case FileType::u32:
      return each_number<std::uint32_t>(bytes, values);
    case FileType::i32:
      return each_number<std::int32_t>(bytes, values);
    case FileType::u64:
      return each_number<std::uint64_t>(bytes, values);
    case FileType::i64:
      return each_number<std::int64_t>(bytes, values);
    case FileType::f8_e5m2:
      return each_small(bytes, values, {2, 15, Special::ieee});
    case FileType::f8_e4m3:
      return each_small(bytes, values, {3, 7, Special::all_ones_is_nan});
    case FileType::f8_e5m2fnuz:
      return each_small(bytes, values, {2, 16, Special::negative_zero_is_nan});
    case FileType::f8_e4m3fnuz:
      return each_small(bytes, values, {3, 8, Special::negative_zero_is_nan});
    case FileType::f8_e8m0:
      return each<std::uint8_t>(bytes, values, decode_e8m0);
    case FileType::f4:
    case FileType::f6_e2m3:
    case FileType::f6_e3m2:
    case FileType::c64:
      break;
  }
  throw LogicError("to_doubles: a type that is no real number on byte boundaries");
}

std::string value_text(FileType type, std::span<const std::byte> element) {
  if (type == FileType::i64) return number_text<std::int64_t>(element);
  if (type == FileType::u64) return number_text<std::uint64_t>(element);
  if (converts_to_float(type)) {
    float value = 0;
    to_floats(type, element, {&value, 1});
    return fmt::format("{}", value);
  }
  double value = 0;
  to_doubles(type, element, {&value, 1});
  return fmt::format("{}", value);
}

}  // namespace megatrain::io
