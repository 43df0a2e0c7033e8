// What the kernels of depth images share.
#pragma once
#include "common.cuh"

// depth_at reads a depth as float32: uint16 or floating point.
DEVICE float depth_at(const char *p, u8 t) {
  if (t == kU16) return (float)*(const u16 *)p;
  return load_float(p, t);
}

// row_of is one row of a 3×4 matrix on a point.
DEVICE float row_of(const float *m, float x, float y, float z) { return __fmaf_rn(m[2], z, __fmaf_rn(m[1], y, __fmaf_rn(m[0], x, m[3]))); }
