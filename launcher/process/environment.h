#pragma once
/// @file
/// The environment that this program was started with.

#include "parallel/rendezvous/variables.h"

namespace megatrain::launcher {

parallel::Environment program_environment();

}  // namespace megatrain::launcher
