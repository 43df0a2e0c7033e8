// Converts decoded frames (4:2:0, 8 bits, interleaved chroma) to RGB. It computes the same integers
// as planar.c (the decoded size) and scale.c (another size) of video/ffmpeg, which are those of
// swscale.
#include "common.cuh"

const i32 kFrames = 32; // frames per launch; Go uses the same number

struct Frames {
  const u8 *planes[kFrames]; // luma
  u8 *outs[kFrames];
  i64 chroma;             // offset of the interleaved chroma from luma
  const i32 *position[4]; // filters: horizontal for luma and chroma, vertical for luma and chroma
  const i16 *weight[4];
  i64 out_row, out_channel;                     // strides, in bytes
  i32 out_column, luma_row, chroma_row, blocks; // blocks per frame
  i32 width, height;                            // of the result
  i32 taps[4], limit[4];                        // from limit on, weights are 0 and memory may end
  i32 n[10];
  // rows of a tile of the result, and the maximal number of rows of the planes that it needs
  i32 tile, luma_rows, chroma_rows;
  i32 pad;
};
static_assert(sizeof(Frames) == 712, "frameParams of Go has the same layout");

DEVICE i32 high(i32 a, i32 b) { return a * b >> 16; }

DEVICE u8 byte_of(i32 v) { return (u8)min(max(v, 0), 255); }

DEVICE void put(const Frames &p, u8 *out, i32 x, i32 y, i32 r, i32 g, i32 b) {
  u8 *at = out + y * p.out_row + x * (i64)p.out_column;
  at[0] = byte_of(r), at[p.out_channel] = byte_of(g), at[2 * p.out_channel] = byte_of(b);
}

// frame_rgb converts frames of the decoded size. Each thread computes two adjacent pixels, which
// share their chroma.
extern "C" __global__ void frame_rgb(const __grid_constant__ Frames p) {
  const u8 *luma = p.planes[blockIdx.x / p.blocks];
  i32 pairs = (p.width + 1) / 2, item = (i32)(blockIdx.x % p.blocks * blockDim.x + threadIdx.x),
      y = item / pairs, x = item % pairs;
  if (y >= p.height) return;
  const u8 *pair = luma + p.chroma + (i64)(y >> 1) * p.chroma_row + 2 * x;
  i32 u = pair[0] * 8 - 1024, v = pair[1] * 8 - 1024;
  i32 r = high(v, p.n[2]), g = high(u, p.n[3]) + high(v, p.n[4]), b = high(u, p.n[5]);
  for (i32 i = 2 * x; i < min(2 * x + 2, p.width); i++) {
    i32 l = high(luma[(i64)y * p.luma_row + i] * 8 - p.n[1], p.n[0]);
    put(p, p.outs[blockIdx.x / p.blocks], i, y, l + r, l + g, l + b);
  }
}

const i32 kTile = 32; // columns of a tile; Go uses the same number

// Rows locates the parts of the planes that a block needs for its tile.
struct Rows {
  const u8 *luma;
  i32 x0, columns; // of the tile
  // first row of luma and of chroma, which is even, and number of row pairs from there
  i32 top, luma_pairs, middle, chroma_pairs;
  u32 *ls, *cs; // each word has two rows of a plane: luma; u and v of chroma in turn
};

// Line reads consecutive groups of four bytes at any address. Each word is read once, and only if
// it contains one of these bytes.
struct Line {
  const u32 *at;
  u32 low;
};

DEVICE Line line(const u8 *aligned) {
  Line l = {(const u32 *)aligned, *(const u32 *)aligned};
  return l;
}

DEVICE u32 four(Line &l, u32 shift, bool last) {
  u32 first = l.low;
  if (shift != 0 || !last) l.low = *++l.at;
  return __funnelshift_r(first, l.low, shift);
}

// Filter is the weights of a column. WORDS is a quarter of the number of taps, or 0 if that is only
// known at run time.
template <int WORDS>
struct Filter {
  const u32 *from;
  i32 n;
  u32 w[WORDS ? 2 * WORDS : 1];
};

template <int WORDS>
DEVICE Filter<WORDS> filter(const Frames &p, i32 plane, i32 x) {
  Filter<WORDS> f;
  f.from = (const u32 *)(p.weight[plane] + x * p.taps[plane]), f.n = p.taps[plane] / 4;
  if (WORDS)
#pragma unroll
    for (i32 i = 0; i < 2 * WORDS; i++) f.w[i] = f.from[i];
  return f;
}

template <int WORDS>
DEVICE i32 add(const Filter<WORDS> &f, i32 i, u32 bytes, i32 sum) {
  return dot2_high(WORDS ? f.w[2 * i + 1] : f.from[2 * i + 1], bytes,
      dot2_low(WORDS ? f.w[2 * i] : f.from[2 * i], bytes, sum));
}

// across_luma filters rows of luma horizontally, to 15 bits. Each thread handles one column and two
// rows at a time. Rows beyond the last repeat the last row and have weight 0.
template <int WORDS>
DEVICE void across_luma(const Frames &p, const Rows &r) {
  i32 x = (i32)threadIdx.x % kTile, last = p.limit[2] - 1;
  if (x >= r.columns) return;
  Filter<WORDS> f = filter<WORDS>(p, 0, r.x0 + x);
  const u8 *plane = r.luma + p.position[0][r.x0 + x];
  u32 shift = (u32)((u64)plane & 3); // the same for all rows
  plane -= shift, shift *= 8;
  for (i32 k = (i32)threadIdx.x / kTile; k < r.luma_pairs; k += (i32)blockDim.x / kTile) {
    Line one = line(plane + (i64)min(r.top + 2 * k, last) * p.luma_row),
         two = line(plane + (i64)min(r.top + 2 * k + 1, last) * p.luma_row);
    i32 a = 0, b = 0;
#pragma unroll
    for (i32 i = 0; i < (WORDS ? WORDS : f.n); i++) {
      bool end = i + 1 == (WORDS ? WORDS : f.n);
      a = add(f, i, four(one, shift, end), a), b = add(f, i, four(two, shift, end), b);
    }
    r.ls[k * kTile + x] = pack_s16(a >> 7, b >> 7);
  }
}

// pairs_of takes two bytes of u and two of v from each of two words, and returns four of each.
DEVICE void pairs_of(Line &l, u32 shift, bool end, u32 &u, u32 &v) {
  u32 two = four(l, shift, false), more = four(l, shift, end);
  u = __byte_perm(two, more, 0x6420), v = __byte_perm(two, more, 0x7531);
}

// across_chroma filters interleaved chroma in the same way.
template <int WORDS>
DEVICE void across_chroma(const Frames &p, const Rows &r) {
  i32 x = (i32)threadIdx.x % (kTile / 2), last = p.limit[3] - 1;
  if (2 * x >= r.columns) return;
  Filter<WORDS> f = filter<WORDS>(p, 1, r.x0 / 2 + x);
  const u8 *plane = r.luma + p.chroma + 2 * p.position[1][r.x0 / 2 + x];
  u32 shift = (u32)((u64)plane & 3);
  plane -= shift, shift *= 8;
  for (i32 k = (i32)threadIdx.x / (kTile / 2); k < r.chroma_pairs;
      k += (i32)blockDim.x / (kTile / 2)) {
    Line one = line(plane + (i64)min(r.middle + 2 * k, last) * p.chroma_row),
         two = line(plane + (i64)min(r.middle + 2 * k + 1, last) * p.chroma_row);
    i32 au = 0, av = 0, bu = 0, bv = 0;
#pragma unroll
    for (i32 i = 0; i < (WORDS ? WORDS : f.n); i++) {
      bool end = i + 1 == (WORDS ? WORDS : f.n);
      u32 u, v;
      pairs_of(one, shift, end, u, v);
      au = add(f, i, u, au), av = add(f, i, v, av);
      pairs_of(two, shift, end, u, v);
      bu = add(f, i, u, bu), bv = add(f, i, v, bv);
    }
    u32 *out = r.cs + 2 * (k * (kTile / 2) + x);
    out[0] = pack_s16(au >> 7, bu >> 7), out[1] = pack_s16(av >> 7, bv >> 7);
  }
}

template <int WORDS>
DEVICE void across(const Frames &p, const Rows &r) {
  across_luma<WORDS>(p, r);
  across_chroma<WORDS>(p, r);
}

// down filters two adjacent words of the horizontal result vertically. A pair of rows has `row`
// words, and the first pair is that of row `from` of the plane. The weights of two rows are four
// bytes: the low bytes, and the high bytes, which are signed.
DEVICE void down(
    const Frames &p, i32 plane, const u32 *words, i32 row, i32 from, i32 y, i32 &one, i32 &two) {
  i32 taps = p.taps[plane] / 2, high_one = 0, high_two = 0;
  const u32 *weight = (const u32 *)p.weight[plane] + y * taps;
  words += (p.position[plane][y] - from) / 2 * row;
  one = two = p.n[0];
#pragma unroll 4
  for (i32 i = 0; i < taps; i++, words += row) {
    u32 w = weight[i], a = words[0], b = words[1];
    one = dot2_low(a, w, one), high_one = dot2_high_signed(a, w, high_one);
    two = dot2_low(b, w, two), high_two = dot2_high_signed(b, w, high_two);
  }
  one = one + (high_one << 8) >> 19, two = two + (high_two << 8) >> 19;
}

// frame_scaled converts frames of another size. Each block computes one tile, whose rows are
// filtered horizontally once. The width of scaled frames must be even.
extern "C" __global__ void __launch_bounds__(256) frame_scaled(const __grid_constant__ Frames p) {
  extern __shared__ __align__(16) char shared[];
  i32 tiles = (p.width + kTile - 1) / kTile, tile = (i32)(blockIdx.x % p.blocks),
      x0 = tile % tiles * kTile, y0 = tile / tiles * p.tile;
  i32 rows = min(p.tile, p.height - y0), last = y0 + rows - 1;
  u8 *out = p.outs[blockIdx.x / p.blocks];
  Rows r;
  r.luma = p.planes[blockIdx.x / p.blocks];
  r.x0 = x0, r.columns = min(kTile, p.width - x0);
  r.top = p.position[2][y0], r.luma_pairs = (p.position[2][last] + p.taps[2] - r.top) / 2;
  r.middle = p.position[3][y0], r.chroma_pairs = (p.position[3][last] + p.taps[3] - r.middle) / 2;
  r.ls = (u32 *)shared, r.cs = r.ls + p.luma_rows / 2 * kTile;
  switch (p.taps[0] == p.taps[1] ? p.taps[0] : 0) {
    case 4: across<1>(p, r); break;
    case 8: across<2>(p, r); break;
    case 12: across<3>(p, r); break;
    case 16: across<4>(p, r); break;
    case 24: across<6>(p, r); break;
    default: across<0>(p, r);
  }
  __syncthreads();
  bool together = p.out_column == 1 && ((u64)out & 1) == 0;
  for (i32 item = (i32)threadIdx.x; item < rows * (kTile / 2); item += (i32)blockDim.x) {
    i32 x = item % (kTile / 2), y = y0 + item / (kTile / 2), l[2], u, v;
    if (2 * x >= r.columns) continue;
    down(p, 3, r.cs + 2 * x, kTile, r.middle, y, u, v);
    u = byte_of(u), v = byte_of(v);
    i32 red = ((v * p.n[3] >> 16) + p.n[7]) * p.n[1],
        green = ((u * p.n[4] >> 16) + (v * p.n[5] >> 16) + p.n[8]) * p.n[1],
        blue = ((u * p.n[6] >> 16) + p.n[9]) * p.n[1];
    down(p, 2, r.ls + 2 * x, kTile, r.top, y, l[0], l[1]);
    l[0] = l[0] * p.n[1] + p.n[2], l[1] = l[1] * p.n[1] + p.n[2];
    if (together) {
      u8 *at = out + y * p.out_row + x0 + 2 * x;
      *(u16 *)at = (u16)pack_u8(l[0] + red >> 16, l[1] + red >> 16);
      *(u16 *)(at + p.out_channel) = (u16)pack_u8(l[0] + green >> 16, l[1] + green >> 16);
      *(u16 *)(at + 2 * p.out_channel) = (u16)pack_u8(l[0] + blue >> 16, l[1] + blue >> 16);
      continue;
    }
    for (i32 i = 0; i < 2; i++)
      put(p, out, x0 + 2 * x + i, y, l[i] + red >> 16, l[i] + green >> 16, l[i] + blue >> 16);
  }
}

const i32 kCopies = 128; // copies per launch; Go uses the same number

// Area is a block of rows of one size. `row` threads copy one row.
struct Area {
  i64 bytes, from_row, to_row, from_at, to_at;
  i32 rows, row;
};

struct Copies {
  const u8 *from[kCopies];
  u8 *to[kCopies];
  Area areas[2];
  i32 blocks, pad; // blocks per copy
};
static_assert(sizeof(Copies) == 2152, "rowsParams of Go has the same layout");

// copy_rows copies rows of memory, 16 bytes per thread.
extern "C" __global__ void copy_rows(const __grid_constant__ Copies p) {
  u32 item = (u32)(blockIdx.x % p.blocks * blockDim.x + threadIdx.x),
      first = (u32)p.areas[0].rows * (u32)p.areas[0].row;
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
