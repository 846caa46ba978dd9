// Memory bandwidth of the AdamW update beside a plain triad (a = b + s * c) on the same threads.
//   adamw_benchmark --benchmark_min_time=1

#include <benchmark/benchmark.h>

#include <vector>

#include "core/base/cores.h"
#include "core/ops/cpu/adamw_kernels.h"
#include "core/optim/adamw.h"

namespace megatrain {
namespace {

using ops::cpu::adamw_kernels;
using ops::cpu::adamw_update_portable;
using ops::cpu::AdamWKernel;

constexpr Index kElements = Index{1} << 26;

void report(benchmark::State& state, Index bytes_per_element) {
  state.SetBytesProcessed(state.iterations() * kElements * bytes_per_element);
  state.SetItemsProcessed(state.iterations() * kElements);
}

void triad(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  std::vector<float> a(kElements), b(kElements, 1.0F), c(kElements, 2.0F);
  for (auto _ : state) {
    pool.for_each(kElements / kUpdatePiece, [&](Index piece) {
      const Index first = piece * kUpdatePiece;
      float* const to = a.data() + first;
      const float* const left = b.data() + first;
      const float* const right = c.data() + first;
      for (Index i = 0; i < kUpdatePiece; ++i) to[i] = left[i] + 3.0F * right[i];
    });
    benchmark::ClobberMemory();
  }
  report(state, 16);  // with the read that precedes an ordinary store
}

void adamw(benchmark::State& state, const AdamWKernel& kernel, MasterFormat master, DType gradient,
           DType moments) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  std::vector<float> weights(kElements, 1.0F), m(kElements), v(kElements), g(kElements);
  std::vector<std::int16_t> remainder(master == MasterFormat::split ? kElements : 0);
  const AdamWSlice slice{kElements,
                         reinterpret_cast<std::byte*>(weights.data()),
                         remainder.data(),
                         reinterpret_cast<std::byte*>(m.data()),
                         reinterpret_cast<std::byte*>(v.data()),
                         reinterpret_cast<const std::byte*>(g.data()),
                         gradient,
                         moments,
                         master};
  const AdamWCoefficients c = adamw_coefficients({}, 3e-4, 0.5, 10, true);
  for (auto _ : state) {
    pool.for_each(kElements / kUpdatePiece, [&](Index piece) {
      kernel.function(slice.part(piece * kUpdatePiece, kUpdatePiece), c);
    });
    benchmark::ClobberMemory();
  }
  report(state, ops::adamw_traffic(master, moments, gradient));
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  using namespace megatrain;
  const auto add = [](benchmark::internal::Benchmark* entry) {
    entry->UseRealTime()->Unit(benchmark::kMillisecond)->Arg(1);
    if (available_cores() > 1) entry->Arg(available_cores());
  };
  add(benchmark::RegisterBenchmark("triad", triad));
  for (const AdamWKernel& kernel : adamw_kernels()) {
    if (kernel.function == &adamw_update_portable) continue;
    for (const auto& [label, master] :
         {std::pair{"/split/", MasterFormat::split}, std::pair{"/fp32/", MasterFormat::fp32},
          std::pair{"/bf16/", MasterFormat::bf16}})
      for (const DType gradient : {DType::bf16, DType::f32})
        for (const DType moments : {DType::f32, DType::bf16})
          add(benchmark::RegisterBenchmark(
              (std::string("adamw/") + kernel.name + label + std::string(name(gradient)) +
               "/moments " + std::string(name(moments)))
                  .c_str(),
              [=, master = master](benchmark::State& state) {
                adamw(state, kernel, master, gradient, moments);
              }));
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
