#pragma once
/// @file
/// Ranks as threads of one process, for tests and the conformance kit.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/communicator.h"

namespace megatrain {

/// The communicators of `size` ranks, which are to be given to one thread each, each with a CPU
/// device of its own. They check that all ranks make the same calls: one that differs is a
/// LogicError on every rank, which names both.
/// @param timeout  how long a collective waits for the ranks that are late
std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    const std::string& name, int size, std::chrono::milliseconds timeout);

}  // namespace megatrain
