#pragma once
/// @file
/// Ops and a stream that only write down what is asked of them: how the cost of a template, and
/// what a benchmark is to run, are found out from the template itself.

#include <functional>
#include <vector>

#include "core/ops/work.h"

namespace megatrain::ops {

/// What `enqueue` asks for, in order. Nothing is computed, and no pointer is followed.
/// `enqueue` may not ask the stream for anything but copies inside the device's memory.
std::vector<AnyOp> record(const std::function<void(const Ops&, Stream&)>& enqueue);

/// Enqueues a recorded op.
void replay(const Ops& ops, Stream& stream, const AnyOp& op);

}  // namespace megatrain::ops
