// The kernels for small FuseOps (direct.cuh). A name has the type and the columns per thread,
// "many" for more than one stream, and "scaled" for a normalization or another output type.
#include "direct.cuh"

#define KERNEL(name, T, E, MANY, SCALED)                              \
  extern "C" __global__ void name(const __grid_constant__ Direct p) { \
    direct<T, E, MANY, SCALED>(p);                                    \
  }
#define ROWS(type, T, E)                          \
  KERNEL(direct_##type##_##E, T, E, false, false) \
  KERNEL(direct_##type##_##E##_many, T, E, true, false)
#define SCALED(type, T, E)                                \
  KERNEL(direct_##type##_##E##_scaled, T, E, false, true) \
  KERNEL(direct_##type##_##E##_many_scaled, T, E, true, true)
#define TYPE(type, T) ROWS(type, T, 4) ROWS(type, T, 1) SCALED(type, T, 4) SCALED(type, T, 1)

TYPE(f32, kF32)
TYPE(bf16, kBF16)
TYPE(f16, kF16)
ROWS(bf16, kBF16, 8)
ROWS(f16, kF16, 8)
