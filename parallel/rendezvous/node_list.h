#pragma once
/// @file
/// Slurm's compressed lists of host names and of tasks per node.

#include <string>
#include <string_view>
#include <vector>

namespace megatrain::parallel {

/// "gnode[08-10,20],login1" -> gnode08, gnode09, gnode10, gnode20, login1. Several brackets in one
/// name multiply, the last one fastest.
/// @param where  the variable, for messages
/// @throws UserError for a list that is none, or of more than 65536 names
std::vector<std::string> expand_node_list(std::string_view list, std::string_view where);

/// "2(x3),1" -> 2, 2, 2, 1.
/// @throws UserError likewise
std::vector<int> expand_task_counts(std::string_view list, std::string_view where);

}  // namespace megatrain::parallel
