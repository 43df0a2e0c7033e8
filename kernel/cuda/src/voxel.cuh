// Definitions that the kernels of VoxelOp share: parameters, cells of points, tiles of points.
//
// The points of an entry are divided into tiles of 2^tile points. voxel_tile sorts each tile by
// bucket (2^shift adjacent cells of an entry's grid). It writes the tile to scratch, with a table
// of the start of each bucket. Then each block of the second kernel owns one bucket. It gathers the
// bucket's run of each tile, sorts and reduces it in shared memory, and writes each of its cells
// once, including empty ones. Results need no atomics in global memory and are not cleared first.
#pragma once
#include "common.cuh"

enum Mode : u8 { kOccupancy, kCount, kSum, kAverage, kMaximum, kMinimum, kFirst };
enum Place : u8 { kInside, kBeyond, kNotFinite };
enum Outside : u8 { kDrop, kClip, kFail };
enum Entries : u8 { kEqual, kLengths, kOffsets };

struct Voxel {
  const char *points, *features, *index; // index: lengths or offsets
  char *out, *coords, *rows, *counts, *found, *stats, *scratch;
  i64 words, table, places, state, arena; // offsets in scratch
  i64 point_entry, point_row, point_axis; // strides, in elements
  i64 feature_entry, feature_row, feature_column;
  i64 index_step;
  i64 out_entry, out_x, out_y, out_z, out_column;
  i64 coords_row, coords_column, rows_row, rows_column, counts_step, stats_step;
  i64 capacity;
  i64 rows_in; // points per entry; ragged: points of all entries
  i64 cells;   // in an entry's grid
  i64 batch;
  float lo[3], size[3], fill;
  float inverse[3], sure; // see quick_cell
  u32 grid[3];
  u32 columns; // features
  u32 tiles, entry_tiles, tile;
  u32 buckets, shift, pitch; // buckets per entry, cells per bucket (log2), u16 per row of the table
  i32 row_bytes, axis_bytes; // quick: strides of points
  u32 feature_bytes;         // wide: stride between rows of features
  u32 room;                  // bytes of shared memory for the points of a bucket
  u8 point_type, feature_type, out_type, mode, outside, entries, bit, flat, sparse, wide;
  u8 list;  // a bucket has too many cells to count them, so its points are sorted
  u8 huge;  // list, and words have no space for the cell, which is computed again
  u8 log;   // 2^log adjacent threads share a bucket's run of a tile
  u8 quick; // points are float32 with small strides; quick_cell computes their cells
  u8 pad[2];
};

static_assert(sizeof(Voxel) == 416, "voxelParams of Go has the same layout");

// The head of scratch.
struct Head {
  u64 first_outside; // number of the point in the order of all points; ~0 = none
  u64 cursor;        // next free point of the arena
  u32 ticket, pad;
};

DEVICE Head *head(const Voxel &p) { return (Head *)p.scratch; }

// ---- cells ----

constexpr u32 kNone = 0xffffffffu; // no cell

struct Cell {
  u32 x, y, z;
  Place place;
};

// load_real is load_float for floating-point types.
DEVICE float load_real(const char *p, u8 t) {
  if (t == kF32) return *(const float *)p;
  if (t == kF64) return __double2float_rn(*(const double *)p);
  return t == kF16 ? f16_float(*(const u16 *)p) : bf16_float(*(const u16 *)p);
}

DEVICE float point_at(const Voxel &p, const char *row, u32 axis) {
  return load_real(row + axis * p.point_axis * size_of(p.point_type), p.point_type);
}

// The division is IEEE and the comparison is on floats. A reciprocal or an early conversion would
// move points between cells.
DEVICE Cell cell_of(const Voxel &p, float x, float y, float z) {
  Cell c;
  c.place = kInside;
  float v[3] = {x, y, z};
  u32 at[3];
#pragma unroll
  for (int a = 0; a < 3; a++) {
    if (!is_finite(v[a])) c.place = kNotFinite;
    float f = floorf(__fdiv_rn(__fsub_rn(v[a], p.lo[a]), p.size[a])), g = (float)p.grid[a];
    at[a] = 0;
    if (f >= g) at[a] = p.grid[a] - 1;
    else if (f >= 0.0f) at[a] = min((u32)f, p.grid[a] - 1);
    if (!(f >= 0.0f && f < g) && c.place == kInside) c.place = kBeyond;
  }
  c.x = at[0], c.y = at[1], c.z = at[2];
  return c;
}

DEVICE bool kept(const Voxel &p, Place place) {
  return place == kInside || (place == kBeyond && p.outside == kClip);
}

DEVICE u64 flat_of(const Voxel &p, const Cell &c) {
  return ((u64)c.x * p.grid[1] + c.y) * p.grid[2] + c.z;
}

struct At {
  u32 x, y, z;
};

DEVICE At at_of(const Voxel &p, u64 cell) {
  if (cell >> 32 == 0) { // 64-bit division is slow
    u32 xy = (u32)cell / p.grid[2];
    return {xy / p.grid[1], xy % p.grid[1], (u32)cell % p.grid[2]};
  }
  u64 xy = cell / p.grid[2];
  return {(u32)(xy / p.grid[1]), (u32)(xy % p.grid[1]), (u32)(cell % p.grid[2])};
}

DEVICE i64 out_offset(const Voxel &p, i64 entry, u64 cell) {
  At a = at_of(p, cell);
  return entry * p.out_entry + a.x * p.out_x + a.y * p.out_y + a.z * p.out_z;
}

// ---- tiles ----

DEVICE i64 clamped(i64 x, i64 hi) { return x < 0 ? 0 : x > hi ? hi : x; }
DEVICE i64 index_at(const Voxel &p, i64 i) { return ((const i64 *)p.index)[i * p.index_step]; }

// Span is the rows of an entry: the first row among all rows (ragged), and their number. Invalid
// values give no rows.
struct Span {
  i64 first, count;
};

DEVICE Span span_of(const Voxel &p, i64 entry) {
  if (p.entries == kEqual) return {0, p.rows_in};
  if (p.entries == kLengths) return {0, clamped(index_at(p, entry), p.rows_in)};
  i64 from = clamped(index_at(p, entry), p.rows_in),
      to = clamped(index_at(p, entry + 1), p.rows_in);
  return {from, to > from ? to - from : 0};
}

// A tile belongs to one entry. The tiles of a ragged entry start at floor(first / 2^tile) + entry.
// These ranges never overlap, whatever the lengths are, so no sum over entries is needed.
DEVICE i64 first_tile(const Voxel &p, i64 entry, const Span &s) {
  return p.entries == kOffsets ? (s.first >> p.tile) + entry : entry * p.entry_tiles;
}

DEVICE i64 entry_of(const Voxel &p, i64 tile) {
  if (p.entries != kOffsets) return p.batch > 1 && p.entry_tiles ? (u32)tile / p.entry_tiles : 0;
  i64 lo = 0, hi = p.batch - 1; // the last entry that starts at or before the tile
  while (lo < hi) {
    i64 mid = (lo + hi + 1) >> 1;
    if ((clamped(index_at(p, mid), p.rows_in) >> p.tile) + mid <= tile) lo = mid;
    else hi = mid - 1;
  }
  return lo;
}

// ---- blocks ----

DEVICE u32 lane() { return threadIdx.x & 31; }
DEVICE u32 lanes_below() { return (1u << lane()) - 1; }

DEVICE u32 warp_scan(u32 v) { // inclusive
  for (u32 d = 1; d < 32; d <<= 1) {
    u32 o = __shfl_up_sync(0xffffffffu, v, d);
    if (lane() >= d) v += o;
  }
  return v;
}

// block_scan returns the sum over the threads before this one; total is the sum over all. partial
// must be 33 words of shared memory.
DEVICE u32 block_scan(u32 v, u32 *partial, u32 &total) {
  u32 in = warp_scan(v), warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  __syncthreads();
  if (lane() == 31) partial[warp] = in;
  __syncthreads();
  if (warp == 0) {
    u32 s = lane() < warps ? partial[lane()] : 0, t = warp_scan(s);
    if (lane() < warps) partial[lane()] = t - s;
    if (lane() == 31) partial[32] = t;
  }
  __syncthreads();
  total = partial[32];
  return partial[warp] + in - v;
}

// block_scan2 is block_scan of a number and of a word: v becomes the sum of the words before.
DEVICE u32 block_scan2(u32 x, u64 &v, u32 &total, u64 &all, u32 *partial, u64 *words) {
  u32 in = x, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  u64 own = v;
  for (u32 d = 1; d < 32; d <<= 1) {
    u32 o = __shfl_up_sync(0xffffffffu, in, d);
    u64 w = __shfl_up_sync(0xffffffffu, v, d);
    if (lane() >= d) in += o, v += w;
  }
  if (lane() == 31) partial[warp] = in, words[warp] = v;
  __syncthreads();
  u32 before = 0;
  u64 below = 0;
  total = 0, all = 0;
#pragma unroll 4
  for (u32 w = 0; w < warps; w++) {
    if (w == warp) before = total, below = all;
    total += partial[w], all += words[w];
  }
  v += below - own;
  return before + in - x;
}

// ---- buckets ----

// Bucket is the tiles of an entry, with the bucket's run in each tile.
struct Bucket {
  i64 entry;
  u32 number;
  i64 first_tile;
  u32 tiles;
  u32 cells; // number of cells; not for a list
  Span span;
  const u16 *table; // row of first_tile, at the bucket
  const u32 *words; // of first_tile
};

DEVICE Bucket bucket_of(const Voxel &p, u32 i) {
  Bucket b;
  u32 entry = p.batch > 1 ? i / p.buckets : 0;
  b.entry = entry;
  b.number = i - entry * p.buckets;
  b.span = span_of(p, b.entry);
  b.first_tile = first_tile(p, b.entry, b.span);
  i64 tiles = (b.span.count + (1ll << p.tile) - 1) >> p.tile, there = (i64)p.tiles - b.first_tile;
  b.tiles = (u32)(tiles < there ? tiles : there > 0 ? there : 0);
  i64 left = p.cells - ((i64)b.number << p.shift);
  b.cells = (u32)(left < (1ll << p.shift) ? left : 1ll << p.shift);
  b.table = (const u16 *)(p.scratch + p.table) + b.first_tile * p.pitch + b.number;
  b.words = (const u32 *)(p.scratch + p.words) + (b.first_tile << p.tile);
  return b;
}

// point_of returns the number of a point within its entry. Decreasing offsets make two entries
// share a tile, so the number is limited to the entry.
DEVICE u32 point_of(const Voxel &p, const Bucket &b, u32 word, u32 tile) {
  return min((tile << p.tile) + (word & ((1u << p.tile) - 1)), (u32)b.span.count - 1);
}

// flat_cell computes the cell of one of the bucket's points again.
DEVICE u64 flat_cell(const Voxel &p, const Bucket &b, u32 point) {
  const char *row = p.points + (b.entry * p.point_entry + (b.span.first + point) * p.point_row) *
                                   size_of(p.point_type);
  return flat_of(p, cell_of(p, point_at(p, row, 0), point_at(p, row, 1), point_at(p, row, 2)));
}

// each_word calls f(word, tile) for every word of the bucket, in any order. 2^log adjacent threads
// share a run. A thread loads four words at once.
template <class F>
DEVICE void each_word(const Voxel &p, const Bucket &b, u32 log, F f) {
  u32 group = threadIdx.x >> log, groups = blockDim.x >> log,
      member = threadIdx.x & ((1u << log) - 1), step = 1u << log;
  const u16 *row = b.table + (u64)group * p.pitch;
  const u32 *words = b.words + ((u64)group << p.tile);
  for (u32 t = group; t < b.tiles;
      t += groups, row += groups * p.pitch, words += (u64)groups << p.tile)
    for (u32 i = row[0] + member, end = row[1]; i < end; i += 4 * step) {
      u32 w[4];
#pragma unroll
      for (u32 k = 0; k < 4; k++)
        if (i + k * step < end) w[k] = words[i + k * step];
#pragma unroll
      for (u32 k = 0; k < 4; k++)
        if (i + k * step < end) f(w[k], t);
    }
}

// Adds the numbers of points inside, outside and not finite over all tiles, in one block.
DEVICE void add_places(const Voxel &p) {
  if (!p.stats) return;
  const u32 *places = (const u32 *)(p.scratch + p.places);
  __shared__ u64 sums[3];
  if (threadIdx.x < 3) sums[threadIdx.x] = 0;
  __syncthreads();
  u64 s[3] = {0, 0, 0};
  for (u32 t = threadIdx.x; t < p.tiles; t += blockDim.x)
    for (u32 a = 0; a < 3; a++) s[a] += places[3 * (i64)t + a];
  for (u32 a = 0; a < 3; a++) atomicAdd(&sums[a], s[a]);
  __syncthreads();
  if (threadIdx.x < 3) ((i64 *)p.stats)[threadIdx.x * p.stats_step] = (i64)sums[threadIdx.x];
}

// failed reports whether a point lies outside and this is an error. Then there is no result.
DEVICE bool failed(const Voxel &p) { return p.outside == kFail && head(p)->first_outside != ~0ull; }
