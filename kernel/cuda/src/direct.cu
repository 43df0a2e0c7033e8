// The kernels of small FuseOps (direct.cuh). Names: type, columns a thread, "many" with more streams than one, "scaled" with a normalisation or
// another type out.
#include "direct.cuh"

#define KERNEL(name, body) \
  extern "C" __global__ void name(const __grid_constant__ Direct p) { body; }
#define ROWS(type, T, E)                                              \
  KERNEL(direct_##type##_##E, (direct_rows<T, E, false>(p)))          \
  KERNEL(direct_##type##_##E##_many, (direct_rows<T, E, true>(p)))
#define SCALED(type, T, E)                                            \
  KERNEL(direct_##type##_##E##_scaled, (direct_scaled<T, E, false>(p))) \
  KERNEL(direct_##type##_##E##_many_scaled, (direct_scaled<T, E, true>(p)))

ROWS(f32, kF32, 4)
ROWS(f32, kF32, 1)
ROWS(bf16, kBF16, 8)
ROWS(bf16, kBF16, 4)
ROWS(bf16, kBF16, 1)
ROWS(f16, kF16, 8)
ROWS(f16, kF16, 4)
ROWS(f16, kF16, 1)
SCALED(f32, kF32, 4)
SCALED(f32, kF32, 1)
SCALED(bf16, kBF16, 4)
SCALED(bf16, kBF16, 1)
SCALED(f16, kF16, 4)
SCALED(f16, kF16, 1)
