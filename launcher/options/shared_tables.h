#pragma once
/// @file
/// Options that more than one command has. Tables point to the fields of `o`, which must outlive
/// them.

#include <string_view>
#include <vector>

#include "launcher/options/run_options.h"

namespace megatrain::launcher {

// Headlines of --help.
inline constexpr const char* kModel = "Model and data";
inline constexpr const char* kBatch = "Batch";
inline constexpr const char* kOptimizer = "Optimizer";
inline constexpr const char* kMachine = "Machine";
inline constexpr const char* kPlan = "Plan";
inline constexpr const char* kRun = "Run";

/// Of a size that cannot be nothing.
inline constexpr double kSomeBytes = 1;

/// Puts `more` after the options of `table`.
void append(std::vector<Option>& table, std::vector<Option> more);

/// On what to run.
std::vector<Option> machine_table(MachineOptions& o);
/// How the states are kept that an update writes.
std::vector<Option> state_table(MachineOptions& o);
Option model_option(RunOptions& o);
/// @param otherwise  what is taken when it is not given
Option peak_option(RunOptions& o, std::string_view otherwise);
/// How a step is cut.
std::vector<Option> batch_table(RunOptions& o);
/// What is asked of the planner besides.
std::vector<Option> choice_table(RunOptions& o);

}  // namespace megatrain::launcher
