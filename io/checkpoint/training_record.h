#pragma once
/// @file
/// training.json: everything that training carries from step to step besides the tensors.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/train/train_state.h"

namespace megatrain::io {

inline constexpr std::string_view kTrainingName = "training.json";
/// The option that says how moments are kept, by the name of a DType. Absent: fp32.
inline constexpr std::string_view kMomentsOption = "moments";
/// The option that says what masters can hold: "fp32" or "bf16". Files hold fp32. Absent: fp32.
inline constexpr std::string_view kMastersOption = "masters";
/// Formats of states. Also lines of a numerics key.
inline constexpr std::string_view kFormatOptions[] = {kMastersOption, kMomentsOption};

struct TrainingRecord {
  TrainState state;
  /// Every option that decides what is learned, as the program spells names and values.
  std::vector<std::pair<std::string, std::string>> options = {};
  std::string numerics_key = {};  ///< core/plan/choices.h
  bool operator==(const TrainingRecord&) const = default;
};

std::string to_json(const TrainingRecord& record);
/// Strict: a missing or unknown field is refused by name, so that nothing is lost between versions.
/// @param source  the file, for messages. @throws UserError
TrainingRecord parse_training_record(std::string_view text, std::string_view source);

}  // namespace megatrain::io
