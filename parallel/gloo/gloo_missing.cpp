#include "parallel/gloo/gloo_transport.h"

namespace megatrain {

bool has_gloo() { return false; }

std::unique_ptr<GlooTransport> make_gloo_transport(const GlooOptions& /*options*/) {
  throw UserError(
      "this build has no Gloo, which several processes on CPUs need; install libgloo-dev and "
      "build again");
}

}  // namespace megatrain
