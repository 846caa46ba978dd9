#pragma once
/// @file
/// The instructions (sm_80 and newer) that tensor-core kernels for bf16 are made of: asynchronous
/// copies, matrix loads and the 16 x 8 x 16 product with fp32 accumulators.
///
/// Fragments, with g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
///   A (16 x 16)  registers: (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8), two elements each
///   B (16 x 8)   registers: (k = 2t, n = g) (k = 2t + 8, n = g), two elements along k each
///   C (16 x 8)   (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1)
/// Two C fragments side by side are therefore the A fragment of the next product.

#include "core/ops/cuda/device_math.cuh"

namespace megatrain::ops::cuda {

__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// Copies 16 bytes to shared memory, or zeros when `valid` is false (`source` is then not read,
/// but has to be a valid address).
__device__ inline void copy_async(void* destination, const void* source, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(destination)),
               "l"(source), "r"(valid ? 16 : 0)
               : "memory");
}

/// The same for 4 bytes.
__device__ inline void copy_async_word(void* destination, const void* source, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(destination)),
               "l"(source), "r"(valid ? 4 : 0)
               : "memory");
}

/// Waits for this thread's copies; a barrier must follow before others read them.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(unsigned (&registers)[4], const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
}

/// The same, each matrix transposed.
__device__ inline void load_matrices_transposed(unsigned (&registers)[4], const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
}

/// c += a . b
__device__ inline void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// 2^x within 2 ulp, results below 2^-126 are 0.
__device__ inline float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Two values rounded to bf16 in one register, `low` in the lower half.
__device__ inline unsigned pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

}  // namespace megatrain::ops::cuda
