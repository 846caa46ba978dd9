#pragma once
/// @file
/// A process axis of size 1.

#include <memory>
#include <string>

#include "core/engine/communicator.h"

namespace megatrain {

/// One rank alone, on any device: gathering and scattering copy where the two places differ, the
/// rest does nothing.
std::unique_ptr<Communicator> make_solo_communicator(std::string name);

}  // namespace megatrain
