// FuseOp on the device: parameters, and the rows of a tile.
#pragma once
#include "plan.cuh"

// What of a stream does not depend on addresses and is seldom there: it lies in device memory, at Fuse.table.
struct Extra {
  i32 a, b;           // normalisation: byte offsets of entries float32 each, in the table
  i32 entries, plane; // column c has entry (c / plane) % entries
  u8 norm;            // 0 none, 1 (x-a)/b, 2 2(x-a)/b-1, 3 x/255
  u8 unit, clip, augment;
  float clip_lo, clip_hi;
  i32 quats, groups; // slerp: byte offset of groups × 4 columns int32; groups < 0: every four columns
  i32 pad;
  i64 column; // bytes between columns of the values
  i64 before, after;
  double period, lo;
  u64 seed, epoch;
  u32 op;
  float noise, dropout, scale_lo, scale_hi;
  i32 pad2;
  i64 samples; // bytes between samples
};

enum StreamFlags : u8 { kLengths = 1, kOffsets = 2, kStaged = 4 };

struct Stream {
  const char *values, *times;
  const char *rows; // lengths or offsets, int64
  const char *samples;
  i64 entry, row;   // bytes between entries and rows of values
  i64 times_entry, times_row;
  i64 max_gap;
  i64 out;      // byte offset of the first column in a row of out
  i64 rows_step; // bytes between lengths or offsets
  i32 n, columns;
  i32 vector;   // the first vector of columns in a row
  i32 pivots;   // where its pivots lie in shared memory
  i32 most;     // how many pivots there may be
  i32 extra;    // byte offset in the table, -1: none
  u8 type, mode, edge, flags;
  i32 staged; // where its values lie in shared memory, under kStaged
};

struct Fuse {
  const char *targets;
  char *out;
  u8 *valid;
  u64 *counts;
  const char *table;
  u32 *status;
  i64 batch;
  i64 targets_entry, targets_row;             // bytes
  i64 out_entry, out_row, out_column;         // bytes
  i64 valid_entry, valid_row, valid_stream;   // bytes
  double epsilon;
  i64 work;                                   // blocks' worth of work: batch × tiles × chunks
  i32 rows, streams, tile, tiles;             // target rows; rows of a tile
  i32 vectors, chunk, chunks;                 // vectors of columns in a row, in a chunk
  i32 plan, pivots, values;                   // byte offsets in shared memory
  u8 time_type, clock, out_type, first;       // first: the first stream is number `first` of valid
  i32 pad;
  Stream s[32];
};

// Row is a row of a plan in shared memory.
struct __align__(16) Row {
  i32 left, right; // left < 0: zero bits
  float w;
  u32 pad;
};

// Span is what of a stream's rows an entry has.
struct __align__(16) Span {
  i64 first; // row of values and times
  i32 n, step;
};

DEVICE Span span_of(const Stream &s, i64 entry) {
  Span v = {0, s.n, 1};
  if (s.flags & kLengths) v.n = (i32)min(max(*(const i64 *)(s.rows + entry * s.rows_step), 0ll), (i64)s.n);
  if (s.flags & kOffsets) {
    v.first = *(const i64 *)(s.rows + entry * s.rows_step);
    v.n = (i32)max(0ll, *(const i64 *)(s.rows + (entry + 1) * s.rows_step) - v.first);
  }
  if (v.n > s.most) v.step = (v.n + s.most - 1) / s.most;
  return v;
}

DEVICE const char *times_of(const Fuse &p, const Stream &s, const Span &v, i64 entry) {
  return s.times + ((s.flags & kOffsets) ? v.first * s.times_row : entry * s.times_entry);
}
DEVICE const char *values_of(const Stream &s, const Span &v, i64 entry) {
  return s.values + ((s.flags & kOffsets) ? v.first * s.row : entry * s.entry);
}

// Shared memory of a tile: spans, plan, pivots, staged values. plan_tile leaves the plan there; all threads pass its barriers.
template <bool STAGE> DEVICE void plan_tile(const Fuse &p, char *shared, i64 entry, i32 from, i32 n, bool writes_valid) {
  Span *spans = (Span *)shared;
  Row *plan = (Row *)(shared + p.plan);
  i64 *pivots = (i64 *)(shared + p.pivots);
  i32 thread = threadIdx.x, threads = blockDim.x, streams = p.streams;
  const char *targets = p.targets + entry * p.targets_entry + from * p.targets_row;
  i64 t = 0;
  i32 todo = n * streams;
  if (thread < todo) t = load_time(targets + thread / streams * p.targets_row, p.time_type, p.clock);
  if (thread < streams) spans[thread] = span_of(p.s[thread], entry);
  __syncthreads();
  {
    i32 s = 0, i = thread, total = p.s[streams - 1].pivots + p.s[streams - 1].most;
    for (; i < total; i += threads) {
      while (s + 1 < streams && i >= p.s[s + 1].pivots) s++;
      const Stream &x = p.s[s];
      Span v = spans[s];
      i32 k = i - x.pivots;
      if (k * v.step >= v.n) continue;
      const char *at = times_of(p, x, v, entry) + min((k + 1) * v.step - 1, v.n - 1) * x.times_row;
      if (p.time_type == kI64 && p.clock == kNanoseconds) copy_async<8>(pivots + i, at);
      else pivots[i] = load_time(at, p.time_type, p.clock);
    }
  }
  if (STAGE) {
    for (i32 s = 0; s < streams; s++) {
      const Stream &x = p.s[s];
      Span v = spans[s];
      const char *at = values_of(x, v, entry);
      stage(shared + x.staged + staged_offset(at), at, v.n * (i32)x.row, thread, threads);
    }
  }
  copy_async_wait();
  __syncthreads();
  for (i32 i = thread; i < todo; i += threads) {
    i32 r = i / streams, s = i - r * streams;
    if (i != thread) t = load_time(targets + r * p.targets_row, p.time_type, p.clock);
    const Stream &x = p.s[s];
    Span v = spans[s];
    Stamps stamps = {pivots + x.pivots, times_of(p, x, v, entry), x.times_row, v.n, v.step, p.time_type, p.clock};
    Way way = {x.mode, x.edge, x.max_gap, 0, 0, p.epsilon};
    Found f = find_row<false>(stamps, way, t);
    Row row = {f.kind == kZero ? -1 : f.left, f.right, f.kind == kBlend ? __double2float_rn(f.w) : 0.0f, 0};
    plan[i] = row;
    if (writes_valid) p.valid[entry * p.valid_entry + (from + r) * p.valid_row + (p.first + s) * p.valid_stream] = f.valid;
  }
  __syncthreads();
}
