#pragma once
/// @file
/// How the master weights are kept.

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/base/types.h"

namespace megatrain {

enum class MasterFormat : std::uint8_t {
  /// fp32, kept as the bf16 value nearest to it (ties away from zero), which is what streams, and
  /// the int16 difference of the bit patterns (core/base/split_master.h). Exact for every finite
  /// fp32 whose bf16 is finite.
  split,
  fp32,  ///< plain fp32; fp32 is what streams (--compute fp32)
  /// bf16 and nothing else: updates round by chance (core/ops/adamw.h), so that weights move by
  /// less than their bf16 can show, on average.
  bf16,
};

/// The format that holds fp32, where this type streams.
constexpr MasterFormat whole_masters(DType wire) {
  return wire == DType::f32 ? MasterFormat::fp32 : MasterFormat::split;
}

/// Of a weight as it streams.
constexpr DType weight_type(MasterFormat format) {
  return format == MasterFormat::fp32 ? DType::f32 : DType::bf16;
}

/// Bytes a weight that streams lacks of its master.
constexpr Index remainder_bytes(MasterFormat format) {
  return format == MasterFormat::split ? Index{sizeof(std::int16_t)} : 0;
}

/// Bytes of a master.
constexpr Index master_bytes(MasterFormat format) {
  return size_of(weight_type(format)) + remainder_bytes(format);
}

/// Calls body(std::integral_constant of this format), for kernels that are compiled for each.
template <class Body>
void with_format(MasterFormat format, const Body& body) {
  using enum MasterFormat;
  switch (format) {
    case split:
      return body(std::integral_constant<MasterFormat, split>());
    case fp32:
      return body(std::integral_constant<MasterFormat, fp32>());
    case bf16:
      return body(std::integral_constant<MasterFormat, bf16>());
  }
}

/// What a master can hold, as --masters spells it: split ones are fp32.
constexpr std::string_view name(MasterFormat format) {
  return format == MasterFormat::bf16 ? "bf16" : "fp32";
}

}  // namespace megatrain
