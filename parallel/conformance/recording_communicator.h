#pragma once
/// @file
/// A communicator that writes down what is asked of it.

#include <memory>
#include <vector>

#include "core/engine/communicator.h"
#include "parallel/cpu/call.h"

namespace megatrain::conformance {

/// Passes every call on to `inner`, after a note of it in `calls`, which must outlive it.
std::unique_ptr<Communicator> record_calls(std::unique_ptr<Communicator> inner,
                                           std::vector<Call>& calls);

}  // namespace megatrain::conformance
