// Integrates one depth image into a truncated signed distance field: kernel.TSDFOp. Each thread
// updates one voxel, so no two write the same memory.
#include "camera.cuh"

struct TSDF {
  const char *depth;
  char *value, *weight;
  i64 depth_row, depth_column; // strides, in elements
  i64 value_x, value_y, value_z, weight_x, weight_y, weight_z;
  i64 voxels;
  u32 grid[3];
  u32 height, width;
  float fx, fy, cx, cy, scale;
  float view[12], lo[3], size[3];
  float truncate, most;
  u8 type, pad[3];
};
static_assert(sizeof(TSDF) == 224, "tsdfParams of Go has the same layout");

extern "C" __global__ void tsdf_integrate(const __grid_constant__ TSDF p) {
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  wait_for_previous_grid();
  let_next_grid_start();
  if (i >= p.voxels) return;
  u32 ix, iy, iz;
  if (p.voxels < (1ll << 32)) { // 64-bit division is slow
    u32 xy = (u32)i / p.grid[2];
    iz = (u32)i % p.grid[2], iy = xy % p.grid[1], ix = xy / p.grid[1];
  } else {
    i64 xy = i / p.grid[2];
    iz = (u32)(i % p.grid[2]), iy = (u32)(xy % p.grid[1]), ix = (u32)(xy / p.grid[1]);
  }
  float cx = __fmaf_rn(__fadd_rn((float)ix, 0.5f), p.size[0], p.lo[0]);
  float cy = __fmaf_rn(__fadd_rn((float)iy, 0.5f), p.size[1], p.lo[1]);
  float cz = __fmaf_rn(__fadd_rn((float)iz, 0.5f), p.size[2], p.lo[2]);
  float z = row_of(p.view + 8, cx, cy, cz);
  if (!(z > 0.0f)) return;
  float u = __fadd_rn(__fdiv_rn(__fmul_rn(p.fx, row_of(p.view, cx, cy, cz)), z), p.cx);
  float v = __fadd_rn(__fdiv_rn(__fmul_rn(p.fy, row_of(p.view + 4, cx, cy, cz)), z), p.cy);
  u = floorf(__fadd_rn(u, 0.5f)), v = floorf(__fadd_rn(v, 0.5f));
  if (!(u >= 0.0f && u < (float)p.width && v >= 0.0f && v < (float)p.height)) return;
  // a width above 2^24 may have been rounded up
  u32 column = min((u32)u, p.width - 1), row = min((u32)v, p.height - 1);
  float depth = __fmul_rn(
      depth_at(p.depth + (row * p.depth_row + column * p.depth_column) * size_of(p.type), p.type),
      p.scale);
  if (!(depth > 0.0f) || !is_finite(depth)) return;
  float sdf = __fsub_rn(depth, z);
  if (sdf < -p.truncate) return;
  float d = fminf(1.0f, __fdiv_rn(sdf, p.truncate));
  float *value = (float *)p.value + ix * p.value_x + iy * p.value_y + iz * p.value_z;
  float *weight = (float *)p.weight + ix * p.weight_x + iy * p.weight_y + iz * p.weight_z;
  float w = *weight;
  if (w > 0.0f) d = __fdiv_rn(__fadd_rn(__fmul_rn(w, *value), d), __fadd_rn(w, 1.0f));
  else w = 0.0f;
  *value = d;
  *weight = fminf(__fadd_rn(w, 1.0f), p.most);
}
