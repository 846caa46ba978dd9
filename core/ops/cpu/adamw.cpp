#include "core/ops/adamw.h"

#include <algorithm>

#include "core/device/cpu/tiny_numbers.h"
#include "core/ops/cpu/adamw_kernels.h"
#include "core/ops/cpu/kernels.h"

namespace megatrain::ops::cpu {

namespace {

/// Elements that one thread takes at once; no element's bits depend on it.
constexpr Index kPiece = Index{1} << 14;

}  // namespace

void adamw(OpState& /*state*/, Stream& stream, const AdamW& op) {
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    const AdamWSlice& s = op.slice;
    announce_write(s.weights, s.count * s.weight_bytes());
    if (s.remainder != nullptr) announce_write(s.remainder, s.count * 2);
    announce_write(s.exp_avg, s.count * size_of(s.moment_type));
    announce_write(s.exp_avg_sq, s.count * size_of(s.moment_type));
    announce_read(s.gradient, s.count * size_of(s.gradient_type));
    own.pool().for_each(ceil_div(s.count, kPiece), [&](Index piece) {
      const KeptTinyNumbers as_on_the_host;
      const Index first = piece * kPiece;
      best_adamw_kernel().function(s.part(first, std::min(kPiece, s.count - first)),
                                   op.coefficients);
    });
  });
}

}  // namespace megatrain::ops::cpu
