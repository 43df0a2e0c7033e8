// Decoded frames, 4:2:0 of 8 bits, to RGB: the integers of video/ffmpeg's planar.c (the size as decoded) and scale.c (another one), which are swscale's.
#include "common.cuh"

const i32 kFrames = 32; // of a launch; Go counts with it

struct Frames {
  const u8 *planes[kFrames]; // luma
  u8 *outs[kFrames];
  i64 u, v; // from luma on
  const i32 *position[4]; // of the filters across luma and chroma, down luma and chroma
  const i16 *weight[4];
  i64 out_row, out_channel; // strides, in bytes
  i32 out_column, luma_row, chroma_row, chroma_step;
  i32 width, height; // of the result
  i32 taps[4], limit[4]; // behind limit weights are 0, and memory may end
  i32 n[10];
  i32 tile, luma_rows, chroma_rows; // rows of a tile of the result, and at most so many of the planes for it
  i32 blocks; // of a frame
};
static_assert(sizeof(Frames) == 720, "frameParams of Go has the same layout");

DEVICE i32 high(i32 a, i32 b) { return a * b >> 16; }

DEVICE u8 byte_of(i32 v) { return (u8)min(max(v, 0), 255); }

DEVICE void put(const Frames &p, u8 *out, i32 x, i32 y, i32 r, i32 g, i32 b) {
  u8 *at = out + y * p.out_row + x * (i64)p.out_column;
  at[0] = byte_of(r), at[p.out_channel] = byte_of(g), at[2 * p.out_channel] = byte_of(b);
}

// frame_rgb makes frames of the size as decoded: two neighbouring pixels, which share their chroma, a thread.
extern "C" __global__ void frame_rgb(const __grid_constant__ Frames p) {
  const u8 *luma = p.planes[blockIdx.x / p.blocks];
  i32 pairs = (p.width + 1) / 2, item = (i32)(blockIdx.x % p.blocks * blockDim.x + threadIdx.x), y = item / pairs, x = item % pairs;
  if (y >= p.height) return;
  i32 at = (y >> 1) * p.chroma_row + x * p.chroma_step, u = luma[p.u + at] * 8 - 1024, v = luma[p.v + at] * 8 - 1024;
  i32 r = high(v, p.n[2]), g = high(u, p.n[3]) + high(v, p.n[4]), b = high(u, p.n[5]);
  for (i32 i = 2 * x; i < min(2 * x + 2, p.width); i++) {
    i32 l = high(luma[(i64)y * p.luma_row + i] * 8 - p.n[1], p.n[0]);
    put(p, p.outs[blockIdx.x / p.blocks], i, y, l + r, l + g, l + b);
  }
}

const i32 kTile = 32; // columns of a tile; Go counts with it
const i32 kTaps = 16; // weights that a thread holds

// across weighs the rows [from, to) of a plane across, to 15 bits. Of each row the block makes n of at most `columns` results, from x0 on; a thread keeps to a column.
DEVICE void across(const Frames &p, i32 k, const u8 *plane, i32 row, i32 step, i32 x0, i32 n, i32 columns, i32 from, i32 to, i16 *out) {
  i32 x = (i32)threadIdx.x % columns, first = p.position[k][x0 + min(x, n - 1)], taps = min(p.taps[k], p.limit[k] - first);
  const i16 *weight = p.weight[k] + (x0 + min(x, n - 1)) * p.taps[k];
  if (x >= n) return;
  i32 w[kTaps];
#pragma unroll
  for (i32 i = 0; i < kTaps; i++) w[i] = i < taps ? weight[i] : 0;
  for (i32 y = from + (i32)threadIdx.x / columns; y < to; y += (i32)blockDim.x / columns) {
    const u8 *at = plane + (i64)y * row + (i64)first * step;
    i32 sum = 0;
#pragma unroll
    for (i32 i = 0; i < kTaps; i++)
      if (i < taps) sum += at[i * step] * w[i];
    for (i32 i = kTaps; i < taps; i++) sum += at[i * step] * weight[i];
    out[(y - from) * columns + x] = (i16)min(max(sum >> 7, -32768), 32767);
  }
}

// down weighs what across made; rows begins with the plane's row `from`.
DEVICE i32 down(const Frames &p, i32 k, const i16 *rows, i32 from, i32 columns, i32 x, i32 y) {
  const i16 *weight = p.weight[k + 2] + y * p.taps[k + 2];
  i32 first = p.position[k + 2][y], taps = min(p.taps[k + 2], p.limit[k + 2] - first), sum = p.n[0];
  for (i32 j = 0; j < taps; j++) sum += rows[(first - from + j) * columns + x] * weight[j];
  return sum >> 19;
}

// frame_scaled makes frames of another size: a tile a block, whose rows are weighed across once.
extern "C" __global__ void __launch_bounds__(256) frame_scaled(const __grid_constant__ Frames p) {
  extern __shared__ __align__(16) char shared[];
  i16 *ls = (i16 *)shared, *us = ls + p.luma_rows * kTile, *vs = us + p.chroma_rows * (kTile / 2);
  const u8 *luma = p.planes[blockIdx.x / p.blocks];
  i32 tiles = (p.width + kTile - 1) / kTile, tile = (i32)(blockIdx.x % p.blocks), x0 = tile % tiles * kTile, y0 = tile / tiles * p.tile;
  i32 columns = min(kTile, p.width - x0), rows = min(p.tile, p.height - y0); // widths are even where frames are scaled
  i32 top = p.position[2][y0], middle = p.position[3][y0];
  across(p, 0, luma, p.luma_row, 1, x0, columns, kTile, top, min(p.position[2][y0 + rows - 1] + p.taps[2], p.limit[2]), ls);
  i32 end = min(p.position[3][y0 + rows - 1] + p.taps[3], p.limit[3]);
  across(p, 1, luma + p.u, p.chroma_row, p.chroma_step, x0 / 2, columns / 2, kTile / 2, middle, end, us);
  across(p, 1, luma + p.v, p.chroma_row, p.chroma_step, x0 / 2, columns / 2, kTile / 2, middle, end, vs);
  __syncthreads();
  for (i32 item = (i32)threadIdx.x; item < rows * (kTile / 2); item += (i32)blockDim.x) {
    i32 x = item % (kTile / 2), y = y0 + item / (kTile / 2);
    if (2 * x >= columns) continue;
    i32 u = byte_of(down(p, 1, us, middle, kTile / 2, x, y)), v = byte_of(down(p, 1, vs, middle, kTile / 2, x, y));
    i32 r = ((v * p.n[3] >> 16) + p.n[7]) * p.n[1], g = ((u * p.n[4] >> 16) + (v * p.n[5] >> 16) + p.n[8]) * p.n[1], b = ((u * p.n[6] >> 16) + p.n[9]) * p.n[1];
    for (i32 i = 2 * x; i < 2 * x + 2; i++) {
      i32 l = down(p, 0, ls, top, kTile, i, y) * p.n[1] + p.n[2];
      put(p, p.outs[blockIdx.x / p.blocks], x0 + i, y, l + r >> 16, l + g >> 16, l + b >> 16);
    }
  }
}

const i32 kPieces = 128; // of a launch; Go counts with it

struct Pieces {
  const u8 *from[kPieces];
  u8 *to[kPieces];
  i64 bytes; // of each
  i32 blocks, pad; // of each
};
static_assert(sizeof(Pieces) == 2064, "piecesParams of Go has the same layout");

// copy_pieces copies pieces of memory, sixteen bytes a thread.
extern "C" __global__ void copy_pieces(const __grid_constant__ Pieces p) {
  const u8 *from = p.from[blockIdx.x / p.blocks];
  u8 *to = p.to[blockIdx.x / p.blocks];
  i64 at = 16 * (i64)(blockIdx.x % p.blocks * blockDim.x + threadIdx.x);
  if (at >= p.bytes) return;
  if ((((u64)from | (u64)to) & 15) == 0 && at + 16 <= p.bytes) {
    store_once<16>((char *)to + at, load_once<16>((const char *)from + at));
    return;
  }
  for (i64 i = at; i < min(at + 16, p.bytes); i++) to[i] = from[i];
}
