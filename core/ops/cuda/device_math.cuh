#pragma once
/// @file
/// What our CUDA kernels share: storage types as fp32, vectors of a width chosen at launch,
/// reductions in a fixed order, and the one place that launches. Products that are meant to be
/// fused are written fmaf: the compiler does not contract.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <initializer_list>

#include "core/base/types.h"
#include "core/device/cuda/cuda_device.h"
#include "core/ops/cuda/kernels.h"
#include "core/ops/norm.h"

namespace megatrain::ops::cuda {

using bf16 = __nv_bfloat16;

inline constexpr int kWarp = 32;

// ---- storage -----------------------------------------------------------------------------------

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(bf16 value) { return __bfloat162float(value); }

template <class T>
__device__ T narrow(float value) {
  if constexpr (sizeof(T) == 4)
    return value;
  else
    return __float2bfloat16_rn(value);
}

/// Elements of a 16-byte access.
template <class T>
inline constexpr int kWide = 16 / static_cast<int>(sizeof(T));

/// N elements that are read and written in one access.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};

template <int N, class T>
__device__ void load(const T* source, float (&values)[N]) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(source);
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = widen(pack.values[i]);
}

template <int N, class T>
__device__ void store(T* destination, const float (&values)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.values[i] = narrow<T>(values[i]);
  *reinterpret_cast<Pack<T, N>*>(destination) = pack;
}

/// destination[i] = values[i], or += with `accumulate`; destination is 16-byte aligned when N is a
/// multiple of four.
template <int N>
__device__ void write_sums(float* destination, const float (&values)[N], bool accumulate) {
  constexpr int kPart = N % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int begin = 0; begin < N; begin += kPart) {
    float part[kPart] = {};
    if (accumulate) load(destination + begin, part);
#pragma unroll
    for (int i = 0; i < kPart; ++i) part[i] += values[begin + i];
    store(destination + begin, part);
  }
}

/// Where row `row` begins, in elements; RowMap::offset for the device.
__device__ inline Index row_offset(const RowMap& map, Index row) {
  if (map.inner == 1) return row * map.outer_stride;
  return row / map.inner * map.outer_stride + row % map.inner * map.inner_stride;
}

// ---- reductions --------------------------------------------------------------------------------

/// The sum over a warp, the same bits in every lane.
template <class T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffU, value, distance);
  return value;
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, distance));
  return value;
}

/// The sum over a one-dimensional block of kThreads threads, the same bits in every thread. Every
/// thread of the block must call it.
template <int kThreads, class T>
__device__ T block_sum(T value) {
  static_assert(kThreads % kWarp == 0);
  value = warp_sum(value);
  if constexpr (kThreads > kWarp) {
    __shared__ T partial[kThreads / kWarp];
    __syncthreads();  // an earlier call may still be reading
    if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = partial[0];
#pragma unroll
    for (int warp = 1; warp < kThreads / kWarp; ++warp) value += partial[warp];
  }
  return value;
}

/// The maximum over a block, as block_sum.
template <int kThreads>
__device__ float block_max(float value) {
  static_assert(kThreads % kWarp == 0);
  value = warp_max(value);
  if constexpr (kThreads > kWarp) {
    __shared__ float partial[kThreads / kWarp];
    __syncthreads();  // an earlier call may still be reading
    if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = partial[0];
#pragma unroll
    for (int warp = 1; warp < kThreads / kWarp; ++warp) value = fmaxf(value, partial[warp]);
  }
  return value;
}

// ---- launches ----------------------------------------------------------------------------------

/// The dynamic shared memory of the block, 16-byte aligned.
__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  return shared_memory;
}

/// Enqueues a kernel and checks the launch. Arguments are converted to the kernel's parameters.
template <class... Parameters, class... Arguments>
void launch(std::string_view what, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            Index shared_bytes, StreamHandle stream, const Arguments&... arguments) {
  // More than 48 KiB of dynamic shared memory has to be asked for.
  if (shared_bytes > 48 * 1024)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  kernel<<<grid, block, static_cast<std::size_t>(shared_bytes), stream>>>(
      static_cast<Parameters>(arguments)...);
  check_launch(what);
}

/// Blocks of a one-dimensional grid for `work` pieces, capped: kernels stride over the rest.
inline dim3 grid_for(Index work, Index cap = Index{1} << 30) {
  return dim3(static_cast<unsigned>(work < cap ? work : cap));
}

/// Calls body with a value of the storage type.
template <class Body>
void with_type(DType type, const Body& body) {
  if (type == DType::f32)
    body(float{});
  else
    body(bf16{});
}

/// An integer as a type, for choices that become template arguments.
template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

/// True when 16-byte accesses of T may be used: every pointer is aligned and every size (pitches,
/// widths, in elements) keeps it so.
template <class T>
bool allows_wide(std::initializer_list<const void*> pointers, std::initializer_list<Index> sizes) {
  for (const void* pointer : pointers)
    if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) return false;
  for (const Index size : sizes)
    if (size % kWide<T> != 0) return false;
  return true;
}

/// Calls body(value of the storage type, Constant<elements per access>): 16-byte accesses when
/// pointers and sizes allow them, else single elements.
template <class Body>
void with_type_and_width(DType type, std::initializer_list<const void*> pointers,
                         std::initializer_list<Index> sizes, const Body& body) {
  with_type(type, [&](auto element) {
    using T = decltype(element);
    if (allows_wide<T>(pointers, sizes))
      body(element, Constant<kWide<T>>{});
    else
      body(element, Constant<1>{});
  });
}

}  // namespace megatrain::ops::cuda
