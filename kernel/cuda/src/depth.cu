// Converts depth images to points: kernel.DepthOp.
#include "camera.cuh"

struct Depth {
  const char *depth;
  char *out, *valid;
  i64 depth_entry, depth_row, depth_column; // strides, in elements
  i64 out_entry, out_row, out_column, out_axis;
  i64 valid_entry, valid_row, valid_column;
  i64 pixels; // in the batch
  u32 height, width;
  float fx, fy, cx, cy, scale;
  float pose[12];
  u8 type, posed, flat, pad[5]; // flat: out is C-contiguous
};
static_assert(sizeof(Depth) == 200, "depthParams of Go has the same layout");

// Each thread computes four adjacent pixels. These are twelve floats, which are written with three
// stores of 16 bytes if the memory allows it.
extern "C" __global__ void depth_points(const __grid_constant__ Depth p) {
  i64 first = 4 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  wait_for_previous_grid();
  let_next_grid_start();
  if (first >= p.pixels) return;
  u32 u, v;
  i64 entry;
  if (p.pixels < (1ll << 32)) { // 64-bit division is slow
    u32 rows = (u32)first / p.width;
    u = (u32)first % p.width, v = rows % p.height, entry = rows / p.height;
  } else {
    i64 rows = first / p.width;
    u = (u32)(first % p.width), v = (u32)(rows % p.height), entry = rows / p.height;
  }
  float o[12];
  u32 there = 0;
  const i32 size = size_of(p.type);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (first + i < p.pixels) {
      float z = __fmul_rn(
          depth_at(p.depth + (entry * p.depth_entry + v * p.depth_row + u * p.depth_column) * size,
              p.type),
          p.scale);
      bool ok = z != 0.0f && is_finite(z);
      float x = __fdiv_rn(__fmul_rn(__fsub_rn((float)u, p.cx), z), p.fx),
            y = __fdiv_rn(__fmul_rn(__fsub_rn((float)v, p.cy), z), p.fy);
      if (p.posed) {
        float a = row_of(p.pose, x, y, z), b = row_of(p.pose + 4, x, y, z),
              c = row_of(p.pose + 8, x, y, z);
        x = a, y = b, z = c;
      }
      float none = real(0x7fc00000u);
      o[3 * i] = ok ? x : none, o[3 * i + 1] = ok ? y : none, o[3 * i + 2] = ok ? z : none;
      there |= (u32)ok << i;
      if (!p.flat) {
        float *out = (float *)p.out + entry * p.out_entry + v * p.out_row + u * p.out_column;
        out[0] = o[3 * i], out[p.out_axis] = o[3 * i + 1], out[2 * p.out_axis] = o[3 * i + 2];
      }
      if (p.valid) p.valid[entry * p.valid_entry + v * p.valid_row + u * p.valid_column] = (char)ok;
    }
    if (++u == p.width) {
      u = 0;
      if (++v == p.height) v = 0, entry++;
    }
  }
  if (!p.flat) return;
  char *out = p.out + first * 12;
  if (first + 4 <= p.pixels && ((u64)p.out & 15) == 0) {
#pragma unroll
    for (int j = 0; j < 3; j++)
      store_once<16>(out + 16 * j,
          {bits(o[4 * j]), bits(o[4 * j + 1]), bits(o[4 * j + 2]), bits(o[4 * j + 3])});
  } else {
#pragma unroll
    for (int j = 0; j < 12; j++)
      if (first + j / 3 < p.pixels) ((float *)out)[j] = o[j];
  }
}
