// Decoded frames, 4:2:0 of 8 bits with chroma in pairs, to RGB: the integers of video/ffmpeg's planar.c (the size as decoded) and scale.c (another one), which are swscale's.
#include "common.cuh"

const i32 kFrames = 32; // of a launch; Go counts with it

struct Frames {
  const u8 *planes[kFrames]; // luma
  u8 *outs[kFrames];
  i64 chroma; // from luma on: pairs
  const i32 *position[4]; // of the filters across luma and chroma, down luma and chroma
  const i16 *weight[4];
  i64 out_row, out_channel; // strides, in bytes
  i32 out_column, luma_row, chroma_row, blocks; // blocks of a frame
  i32 width, height; // of the result
  i32 taps[4], limit[4]; // behind limit weights are 0, and memory may end
  i32 n[10];
  i32 tile, luma_rows, chroma_rows; // rows of a tile of the result, and at most so many of the planes for it
  i32 pad;
};
static_assert(sizeof(Frames) == 712, "frameParams of Go has the same layout");

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
  const u8 *pair = luma + p.chroma + (i64)(y >> 1) * p.chroma_row + 2 * x;
  i32 u = pair[0] * 8 - 1024, v = pair[1] * 8 - 1024;
  i32 r = high(v, p.n[2]), g = high(u, p.n[3]) + high(v, p.n[4]), b = high(u, p.n[5]);
  for (i32 i = 2 * x; i < min(2 * x + 2, p.width); i++) {
    i32 l = high(luma[(i64)y * p.luma_row + i] * 8 - p.n[1], p.n[0]);
    put(p, p.outs[blockIdx.x / p.blocks], i, y, l + r, l + g, l + b);
  }
}

const i32 kTile = 32; // columns of a tile; Go counts with it

DEVICE i32 within_16(i32 v) { return min(max(v, -32768), 32767); }

// shifted reads four bytes at any address: the words that hold them are `low`, already read, and the next. Nothing is read that holds none of them.
DEVICE u32 shifted(u32 &low, const u8 *at, bool last) {
  u32 shift = (u32)((u64)at & 3) * 8, first = low;
  if (shift != 0 || !last) low = *(const u32 *)(at - (shift >> 3) + 4);
  return __funnelshift_r(first, low, shift);
}

// across_luma weighs the rows [from, to) of luma across, to 15 bits: n columns from x0 on, a thread keeps to one. WORDS is a quarter of the taps, or 0: not known before.
template <int WORDS> DEVICE void across_luma(const Frames &p, const u8 *plane, i32 x0, i32 n, i32 from, i32 to, i16 *out) {
  i32 x = (i32)threadIdx.x % kTile, words = WORDS ? WORDS : p.taps[0] / 4;
  if (x >= n) return;
  const u32 *weight = (const u32 *)(p.weight[0] + (x0 + x) * p.taps[0]);
  u32 w[WORDS ? 2 * WORDS : 1];
  if (WORDS)
#pragma unroll
    for (i32 i = 0; i < 2 * WORDS; i++) w[i] = weight[i];
  plane += p.position[0][x0 + x];
  for (i32 y = from + (i32)threadIdx.x / kTile; y < to; y += (i32)blockDim.x / kTile) {
    const u8 *at = plane + (i64)y * p.luma_row;
    u32 low = *(const u32 *)(at - ((u64)at & 3));
    i32 sum = 0;
#pragma unroll
    for (i32 i = 0; i < words; i++, at += 4) {
      u32 four = shifted(low, at, i + 1 == words);
      sum = dot2_low(WORDS ? w[2 * i] : weight[2 * i], four, sum);
      sum = dot2_high(WORDS ? w[2 * i + 1] : weight[2 * i + 1], four, sum);
    }
    out[(y - from) * kTile + x] = (i16)within_16(sum >> 7);
  }
}

// across_chroma does so with pairs of chroma.
template <int WORDS> DEVICE void across_chroma(const Frames &p, const u8 *plane, i32 x0, i32 n, i32 from, i32 to, i16 *us, i16 *vs) {
  i32 x = (i32)threadIdx.x % (kTile / 2), words = WORDS ? WORDS : p.taps[1] / 4;
  if (x >= n) return;
  const u32 *weight = (const u32 *)(p.weight[1] + (x0 + x) * p.taps[1]);
  u32 w[WORDS ? 2 * WORDS : 1];
  if (WORDS)
#pragma unroll
    for (i32 i = 0; i < 2 * WORDS; i++) w[i] = weight[i];
  plane += 2 * p.position[1][x0 + x];
  for (i32 y = from + (i32)threadIdx.x / (kTile / 2); y < to; y += (i32)blockDim.x / (kTile / 2)) {
    const u8 *at = plane + (i64)y * p.chroma_row;
    u32 low = *(const u32 *)(at - ((u64)at & 3));
    i32 u = 0, v = 0;
#pragma unroll
    for (i32 i = 0; i < words; i++, at += 8) {
      u32 two = shifted(low, at, false), more = shifted(low, at + 4, i + 1 == words);
      u32 four_u = __byte_perm(two, more, 0x6420), four_v = __byte_perm(two, more, 0x7531), a = WORDS ? w[2 * i] : weight[2 * i], b = WORDS ? w[2 * i + 1] : weight[2 * i + 1];
      u = dot2_high(b, four_u, dot2_low(a, four_u, u));
      v = dot2_high(b, four_v, dot2_low(a, four_v, v));
    }
    us[(y - from) * (kTile / 2) + x] = (i16)within_16(u >> 7);
    vs[(y - from) * (kTile / 2) + x] = (i16)within_16(v >> 7);
  }
}

// Rows is what a block needs of the planes for its tile.
struct Rows {
  const u8 *luma;
  i32 x0, columns, top, bottom, middle, end; // columns of the tile; rows of luma, of chroma
  i16 *ls, *us, *vs;
};

template <int WORDS> DEVICE void across(const Frames &p, const Rows &r) {
  across_luma<WORDS>(p, r.luma, r.x0, r.columns, r.top, r.bottom, r.ls);
  across_chroma<WORDS>(p, r.luma + p.chroma, r.x0 / 2, r.columns / 2, r.middle, r.end, r.us, r.vs);
}

// down weighs what across made; rows begins with the plane's row `from`.
DEVICE i32 down(const Frames &p, const i16 *rows, i32 from, i32 columns, i32 x, i32 y) {
  const i16 *weight = p.weight[3] + y * p.taps[3];
  i32 first = p.position[3][y], taps = min(p.taps[3], p.limit[3] - first), sum = p.n[0];
  rows += (first - from) * columns + x;
  for (i32 j = 0; j < taps; j++) sum += rows[j * columns] * weight[j];
  return sum >> 19;
}

// down_two does so with luma, of two neighbours.
DEVICE void down_two(const Frames &p, const i16 *rows, i32 from, i32 x, i32 y, i32 &one, i32 &two) {
  const i16 *weight = p.weight[2] + y * p.taps[2];
  i32 first = p.position[2][y], taps = min(p.taps[2], p.limit[2] - first);
  one = two = p.n[0];
  rows += (first - from) * kTile + x;
  for (i32 j = 0; j < taps; j++) {
    i32 pair = *(const i32 *)(rows + j * kTile), w = weight[j];
    one += (i16)pair * w, two += (pair >> 16) * w;
  }
  one >>= 19, two >>= 19;
}

// frame_scaled makes frames of another size: a tile a block, whose rows are weighed across once.
extern "C" __global__ void __launch_bounds__(256) frame_scaled(const __grid_constant__ Frames p) {
  extern __shared__ __align__(16) char shared[];
  i16 *ls = (i16 *)shared, *us = ls + p.luma_rows * kTile, *vs = us + p.chroma_rows * (kTile / 2);
  i32 tiles = (p.width + kTile - 1) / kTile, tile = (i32)(blockIdx.x % p.blocks), x0 = tile % tiles * kTile, y0 = tile / tiles * p.tile;
  i32 rows = min(p.tile, p.height - y0), last = y0 + rows - 1;
  Rows r = {p.planes[blockIdx.x / p.blocks], x0, min(kTile, p.width - x0), p.position[2][y0], min(p.position[2][last] + p.taps[2], p.limit[2]), // widths are even where frames are scaled
            p.position[3][y0], min(p.position[3][last] + p.taps[3], p.limit[3]), ls, us, vs};
  switch (p.taps[0] == p.taps[1] ? p.taps[0] : 0) {
  case 4: across<1>(p, r); break;
  case 8: across<2>(p, r); break;
  case 12: across<3>(p, r); break;
  case 16: across<4>(p, r); break;
  case 24: across<6>(p, r); break;
  default: across<0>(p, r);
  }
  __syncthreads();
  for (i32 item = (i32)threadIdx.x; item < rows * (kTile / 2); item += (i32)blockDim.x) {
    i32 x = item % (kTile / 2), y = y0 + item / (kTile / 2), l[2];
    if (2 * x >= r.columns) continue;
    i32 u = byte_of(down(p, us, r.middle, kTile / 2, x, y)), v = byte_of(down(p, vs, r.middle, kTile / 2, x, y));
    i32 red = ((v * p.n[3] >> 16) + p.n[7]) * p.n[1], green = ((u * p.n[4] >> 16) + (v * p.n[5] >> 16) + p.n[8]) * p.n[1], blue = ((u * p.n[6] >> 16) + p.n[9]) * p.n[1];
    down_two(p, ls, r.top, 2 * x, y, l[0], l[1]);
    for (i32 i = 0; i < 2; i++) {
      i32 light = l[i] * p.n[1] + p.n[2];
      put(p, p.outs[blockIdx.x / p.blocks], x0 + 2 * x + i, y, light + red >> 16, light + green >> 16, light + blue >> 16);
    }
  }
}

const i32 kCopies = 128; // of a launch; Go counts with it

// Area is rows of one size; `row` threads take one.
struct Area {
  i64 bytes, from_row, to_row, from_at, to_at;
  i32 rows, row;
};

struct Copies {
  const u8 *from[kCopies];
  u8 *to[kCopies];
  Area areas[2];
  i32 blocks, pad; // of each copy
};
static_assert(sizeof(Copies) == 2152, "rowsParams of Go has the same layout");

// copy_rows copies rows of memory, sixteen bytes a thread.
extern "C" __global__ void copy_rows(const __grid_constant__ Copies p) {
  u32 item = (u32)(blockIdx.x % p.blocks * blockDim.x + threadIdx.x), first = (u32)p.areas[0].rows * (u32)p.areas[0].row;
  bool second = item >= first;
  const Area &a = p.areas[second];
  if (second) item -= first;
  if (a.row == 0 || item >= (u32)a.rows * (u32)a.row) return;
  u32 row = item / (u32)a.row;
  i64 at = 16 * (i64)(item - row * (u32)a.row);
  const u8 *from = p.from[blockIdx.x / p.blocks] + a.from_at + row * a.from_row;
  u8 *to = p.to[blockIdx.x / p.blocks] + a.to_at + row * a.to_row;
  if ((((u64)from | (u64)to) & 15) == 0 && at + 16 <= a.bytes) {
    store_once<16>((char *)to + at, load_once<16>((const char *)from + at));
    return;
  }
  for (i64 i = at; i < min(at + 16, a.bytes); i++) to[i] = from[i];
}
