#include "core/base/error.h"
#include "core/device/device.h"

namespace megatrain {

std::unique_ptr<Graph> Stream::capture(const std::function<void()>& /*enqueue*/) {
  throw LogicError("internal error: a capture on a stream of a device without graphs");
}

void Stream::launch(Graph& /*graph*/) {
  throw LogicError("internal error: a graph on a stream of a device without graphs");
}

}  // namespace megatrain
