// The cells of points of a tile, found fast.
#pragma once
#include "voxel.cuh"

// Beside the way of most points: inlined, its registers would cost all of them.
static __device__ __noinline__ u32 exact_cell(float d, float size) {
  float f = floorf(__fdiv_rn(d, size));
  return f >= 0.0f && f < 4194304.0f ? (u32)f : kNone;
}

// quick_floor finds a point's cell along an axis by a multiplication. The product is within 1.5·2^-23 of the quotient's size, so that both have
// the same floor unless the product is that close to an integer: then it divides, as cell_of does. It is false for what is not finite. Products
// beyond 2^22 give a number that no grid has.
DEVICE bool quick_floor(const Voxel &p, int a, float x, u32 &i) {
  float d = __fsub_rn(x, p.lo[a]), q = __fmul_rn(d, p.inverse[a]);
#ifdef ROBOCACHE_SIM
  float f = floorf(q);
  i = f >= 0.0f && f < 4194304.0f ? (u32)f : kNone;
#else
  float m = __fadd_rd(q, 12582912.0f), f = __fsub_rn(m, 12582912.0f); // 1.5·2^23: the last bit is 1
  i = bits(m) - 0x4b400000u;
#endif
  if (fabsf(__fsub_rn(__fsub_rn(q, f), 0.5f)) < p.sure) return true;
  i = exact_cell(d, p.size[a]);
  return is_finite(x);
}

DEVICE bool quick_cell(const Voxel &p, float x, float y, float z, u32 &cell, bool &inside) {
  u32 ix, iy, iz;
  bool sure = quick_floor(p, 0, x, ix) & quick_floor(p, 1, y, iy) & quick_floor(p, 2, z, iz);
  inside = ix < p.grid[0] && iy < p.grid[1] && iz < p.grid[2];
  cell = (ix * p.grid[1] + iy) * p.grid[2] + iz;
  return sure && (inside || p.outside == kDrop);
}
