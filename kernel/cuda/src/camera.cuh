// Functions that the kernels for depth images share.
#pragma once
#include "common.cuh"

// depth_at returns a depth (uint16 or floating point) as float32.
DEVICE float depth_at(const char *p, u8 t) {
  if (t == kU16) return (float)*(const u16 *)p;
  return load_float(p, t);
}

// row_of multiplies one row of a 3×4 matrix with a point.
DEVICE float row_of(const float *m, float x, float y, float z) {
  return __fmaf_rn(m[2], z, __fmaf_rn(m[1], y, __fmaf_rn(m[0], x, m[3])));
}
