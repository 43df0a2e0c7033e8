// Decoded frames, 4:2:0 of 8 bits, to RGB: the integers of video/ffmpeg's planar.c (the size as decoded) and scale.c (another one), which are swscale's.
// Two neighbouring pixels, which share their chroma, a thread.
#include "common.cuh"

struct Frame {
  const u8 *luma, *u, *v;
  u8 *out;
  const i32 *position[4]; // of the filters across luma and chroma, down luma and chroma
  const i16 *weight[4];
  i64 out_row, out_channel; // strides, in bytes
  i32 out_column, luma_row, chroma_row, chroma_step;
  i32 width, height; // of the result
  i32 taps[4];
  i32 scaled, n[10];
  i32 pad;
};
static_assert(sizeof(Frame) == 200, "frameParams of Go has the same layout");

DEVICE i32 high(i32 a, i32 b) { return a * b >> 16; }

DEVICE u8 byte_of(i32 v) { return (u8)min(max(v, 0), 255); }

// weighed is one sample of a plane of another size: rows weighed across to 15 bits, then down.
DEVICE i32 weighed(const Frame &p, i32 k, const u8 *plane, i32 row, i32 step, i32 x, i32 y) {
  const i16 *across = p.weight[k] + x * p.taps[k], *down = p.weight[k + 2] + y * p.taps[k + 2];
  const u8 *from = plane + (i64)p.position[k + 2][y] * row + (i64)p.position[k][x] * step;
  i32 sum = p.n[0];
  for (i32 j = 0; j < p.taps[k + 2]; j++, from += row) {
    i32 w = down[j], one = 0;
    if (w == 0) continue;
    for (i32 i = 0; i < p.taps[k]; i++)
      if (across[i] != 0) one += from[i * step] * across[i];
    sum += min(max(one >> 7, -32768), 32767) * w;
  }
  return sum >> 19;
}

DEVICE void put(const Frame &p, i32 x, i32 y, i32 r, i32 g, i32 b) {
  u8 *at = p.out + y * p.out_row + x * (i64)p.out_column;
  at[0] = byte_of(r), at[p.out_channel] = byte_of(g), at[2 * p.out_channel] = byte_of(b);
}

extern "C" __global__ void frame_rgb(const __grid_constant__ Frame p) {
  i32 pairs = (p.width + 1) / 2, item = (i32)(blockIdx.x * blockDim.x + threadIdx.x), y = item / pairs, x = item % pairs;
  if (y >= p.height) return;
  if (!p.scaled) {
    i32 at = (y >> 1) * p.chroma_row + x * p.chroma_step, u = p.u[at] * 8 - 1024, v = p.v[at] * 8 - 1024;
    i32 r = high(v, p.n[2]), g = high(u, p.n[3]) + high(v, p.n[4]), b = high(u, p.n[5]);
    for (i32 i = 2 * x; i < min(2 * x + 2, p.width); i++) {
      i32 l = high(p.luma[(i64)y * p.luma_row + i] * 8 - p.n[1], p.n[0]);
      put(p, i, y, l + r, l + g, l + b);
    }
    return;
  }
  i32 u = byte_of(weighed(p, 1, p.u, p.chroma_row, p.chroma_step, x, y)), v = byte_of(weighed(p, 1, p.v, p.chroma_row, p.chroma_step, x, y));
  i32 r = ((v * p.n[3] >> 16) + p.n[7]) * p.n[1], g = ((u * p.n[4] >> 16) + (v * p.n[5] >> 16) + p.n[8]) * p.n[1], b = ((u * p.n[6] >> 16) + p.n[9]) * p.n[1];
  for (i32 i = 2 * x; i < 2 * x + 2; i++) { // widths are even where frames are scaled
    i32 l = weighed(p, 0, p.luma, p.luma_row, 1, i, y) * p.n[1] + p.n[2];
    put(p, i, y, l + r >> 16, l + g >> 16, l + b >> 16);
  }
}
