#pragma once
/// @file
/// The address at which the other ranks of a run can reach this one.

#include <span>
#include <string>

#include "parallel/rendezvous/socket.h"

namespace megatrain::parallel {

/// Names of hosts are no help: where a machine looks up its own, it often finds loopback. What has
/// proved to work is the way to the rendezvous. A rank that went there by loopback is on the
/// machine that serves, and that one's address is where the ranks of other machines went.
/// @param ends  of every rank's connection to the rendezvous, by rank
/// @returns loopback when all ranks are on one machine and went by loopback
std::string reachable_address(std::span<const Ends> ends, int rank);

}  // namespace megatrain::parallel
