// FuseOp on the device: its parameters, and the plan of a tile of target rows.
#pragma once
#include "plan.cuh"

// Extra holds rare settings of a stream that do not depend on addresses. It is in device memory, at
// byte Stream.extra of the table.
struct Extra {
  i32 a, b;           // normalization: offsets of the entries in the table, each entry float32
  i32 entries, plane; // column c uses entry (c / plane) % entries
  u8 norm;            // 0 none, 1 (x-a)/b, 2 2(x-a)/b-1
  u8 unit, clip, augment;
  float clip_lo, clip_hi;
  float noise, dropout, scale_lo, scale_hi;
  u32 key0, key1; // Philox key
  u8 tame;        // the magnitude of every b is 0 or in 2^-60 … 2^60
  u8 pad[3];
  i32 per; // ApplyOp: rows per sample; 0: all rows belong to sample 0
  // slerp: offset in the table of four int32 columns per quaternion; quat_count -1: every four
  // columns
  i32 quats, quat_count;
  i64 column;        // stride between columns of the values, in bytes
  i64 out_column;    // ApplyOp: stride between columns of the result, in bytes
  i64 before, after; // mean, ns
  double period, lo; // angle
  i64 samples;       // stride between samples, in bytes
  // ApplyOp: strides between rows of kind, left, right, weight, valid, in bytes
  i64 strides[5];
};

// kBrief: find_brief can be used
enum StreamFlags : u8 { kLengths = 1, kOffsets = 2, kTimesF64 = 4, kTimesF32 = 8, kBrief = 16 };

struct Stream {
  const char *values, *times;
  const char *rows; // lengths or offsets, int64
  const char *samples;
  // strides between entries and rows of values, in bytes; with kOffsets, entry is the number of
  // rows
  i64 entry, row;
  i64 times_entry, times_row;
  i64 max_gap;
  i64 out;       // byte offset of the first column in a row of out
  i64 rows_step; // stride between lengths or offsets, in bytes
  i32 n, columns;
  i32 vector; // number of its first vector of columns in a row
  i32 pivots; // offset of its pivots in shared memory
  i32 most;   // maximal number of pivots
  i32 extra;  // byte offset in the table; -1: none
  u8 type, mode, edge, flags;
  i32 staged; // offset of its values in shared memory, if they are staged
};

#ifndef STREAMS
#define STREAMS 32
#endif

struct Fuse {
  const char *targets;
  char *out;
  u8 *valid;
  u64 *counts;
  const char *table;
  i64 batch;
  i64 targets_entry, targets_row;           // strides in bytes
  i64 out_entry, out_row, out_column;       // strides in bytes
  i64 valid_entry, valid_row, valid_stream; // strides in bytes
  double epsilon;
  i64 work; // number of blocks of work: batch × tiles × chunks
  // target rows; streams; rows of a tile; tiles per entry
  i32 rows, streams, tile, tiles;
  i32 vectors, chunk, chunks; // vectors of columns in a row and in a chunk; chunks
  i32 plan, pivots, result;   // byte offsets in shared memory
  // staged kernels: one or two buffers, each with targets, timestamps and values of one entry
  i32 buffer, buffer_bytes, buffers;
  i32 zeros, zero_bytes, pad;            // a row of zeros
  u8 time_type, clock, out_type, ragged; // ragged: some stream has lengths or offsets
  i32 first;                             // number of the first stream, in valid
  Stream s[STREAMS];
};

// Row is a row of a plan in shared memory. WideRow has everything that the general kernel needs.
struct __align__(16) Row {
  i32 left, right;
  float w;
  u32 keep; // all ones, or 0: the result is zero bits, whatever the samples are
};
struct __align__(8) WideRow {
  double w;
  i32 left, right;
  u32 kind, drop;
};

DEVICE void set_row(Row &r, const Brief &f) {
  r.left = f.left;
  r.right = f.right;
  r.w = f.w;
  r.keep = f.zero ? 0u : ~0u;
}
DEVICE void set_row(WideRow &r, const Found &f) {
  r.w = f.w;
  r.left = f.left;
  r.right = f.right;
  r.kind = f.kind;
  r.drop = 0;
}
DEVICE Brief brief_of(const Found &f) {
  return Brief{f.left, f.right, f.kind == kBlend ? __double2float_rn(f.w) : 0.0f, f.kind == kZero,
      f.valid != 0};
}

// Span is the rows of a stream that belong to an entry.
struct __align__(16) Span {
  i64 first; // first row of values and times
  i32 n, step;
};

DEVICE u8 time_type(const Stream &s) {
  return (s.flags & kTimesF64) ? kF64 : (s.flags & kTimesF32) ? kF32 : kI64;
}

// span_of limits lengths and offsets to the existing rows. If they were not checked, wrong ones
// give wrong rows, but nothing outside is read.
DEVICE Span span_of(const Stream &s, i64 entry) {
  Span v = {0, s.n, 1};
  if (s.flags & kLengths)
    v.n = (i32)min(max(*(const i64 *)(s.rows + entry * s.rows_step), 0ll), (i64)s.n);
  if (s.flags & kOffsets) {
    v.first = min(max(0ll, *(const i64 *)(s.rows + entry * s.rows_step)), s.entry);
    v.n = (i32)min(max(0ll, *(const i64 *)(s.rows + (entry + 1) * s.rows_step) - v.first),
        min(s.entry - v.first, 0x7fffffffll));
  }
  if (v.n > s.most) v.step = (v.n + s.most - 1) / s.most;
  return v;
}

// span returns the result of span_of, from shared memory if it was stored there.
DEVICE Span span(const Fuse &p, const char *spans, i32 s0, i32 s) {
  if (p.ragged) return ((const Span *)spans)[s];
  Span v = {0, p.s[s0 + s].n, 1};
  if (v.n > p.s[s0 + s].most) v.step = (v.n + p.s[s0 + s].most - 1) / p.s[s0 + s].most;
  return v;
}

DEVICE const char *times_of(const Stream &s, const Span &v, i64 entry) {
  return s.times + ((s.flags & kOffsets) ? v.first * s.times_row : entry * s.times_entry);
}
DEVICE const char *values_of(const Stream &s, const Span &v, i64 entry) {
  return s.values + ((s.flags & kOffsets) ? v.first * s.row : entry * s.entry);
}

// Ahead holds the addresses of a thread's first target and first timestamp of a tile. They are
// computed before the wait for the previous grid, which hides the latency of the parameters.
struct Ahead {
  const char *target, *timestamp;
  i32 pivot, s; // where the timestamp is stored; stream of the timestamp
};

// timestamp_at returns the address of pivot i. Pivots are counted from the first one of stream s0.
// s must be at most the stream of the pivot.
DEVICE const char *timestamp_at(
    const Fuse &p, const char *spans, i32 s0, i32 streams, i64 entry, i32 i, i32 &s) {
  i32 base = p.s[s0].pivots;
#pragma unroll 1
  while (s + 1 < streams && i >= p.s[s0 + s + 1].pivots - base) s++;
  const Stream &x = p.s[s0 + s];
  Span v = span(p, spans, s0, s);
  i64 k = i - (x.pivots - base);
  if (v.step == 1) return k < v.n ? times_of(x, v, entry) + k * x.times_row : nullptr;
  return k * v.step < v.n
             ? times_of(x, v, entry) + min((k + 1) * v.step - 1, (i64)v.n - 1) * x.times_row
             : nullptr;
}

DEVICE i32 pivots_of(const Fuse &p, i32 s0, i32 streams) {
  return p.s[s0 + streams - 1].pivots + p.s[s0 + streams - 1].most - p.s[s0].pivots;
}

DEVICE Ahead look_ahead(const Fuse &p, i32 s0, i32 streams, i64 entry, i32 from, i32 n) {
  Ahead a = {nullptr, nullptr, (i32)threadIdx.x, 0};
  i32 thread = threadIdx.x;
  if (thread < n * streams)
    a.target = p.targets + entry * p.targets_entry +
               (from + (streams == 1 ? thread : thread / streams)) * p.targets_row;
  if (!p.ragged && thread < pivots_of(p, s0, streams))
    a.timestamp = timestamp_at(p, nullptr, s0, streams, entry, thread, a.s);
  return a;
}

DEVICE void take_pivot(const Fuse &p, const Stream &x, i64 *to, const char *at) {
  u8 type = time_type(x);
  if (type == kI64 && p.clock == kNanoseconds) copy_async<8>(to, at);
  else *to = load_time(at, type, p.clock);
}

// gather copies the spans and pivots that the plan of a tile needs to shared memory.
DEVICE void gather(const Fuse &p, char *shared, i32 s0, i32 streams, i64 entry, const Ahead &a) {
  i64 *pivots = (i64 *)(shared + p.pivots);
  i32 thread = threadIdx.x, s = 0, i = thread, total = pivots_of(p, s0, streams);
  if (p.ragged) {
    if (thread < streams) ((Span *)shared)[thread] = span_of(p.s[s0 + thread], entry);
    __syncthreads();
  } else {
    s = a.s;
    i += blockDim.x;
    if (a.timestamp != nullptr) take_pivot(p, p.s[s0 + s], pivots + a.pivot, a.timestamp);
  }
#pragma unroll 1
  for (; i < total; i += blockDim.x) {
    const char *at = timestamp_at(p, shared, s0, streams, entry, i, s);
    if (at != nullptr) take_pivot(p, p.s[s0 + s], pivots + i, at);
  }
  copy_async_wait();
  __syncthreads();
}

// find_rare handles what find_brief cannot, as a separate function. It takes no struct, so that
// none has to be in memory for it.
COLD Found find_rare(
    const Fuse &p, i32 s, i64 first, i32 n, i32 step, const i64 *pivots, i64 entry, i64 t) {
  const Stream &x = p.s[s];
  Span v = {first, n, step};
  Timestamps timestamps = {
      pivots, times_of(x, v, entry), x.times_row, n, step, time_type(x), p.clock};
  Way way = {x.mode, x.edge, x.max_gap, 0, 0, p.epsilon};
  return find_row<false>(timestamps, way, t);
}

DEVICE Brief find_at(const Fuse &p, i32 s, const Span &v, const i64 *pivots, i64 entry, i64 t) {
  const Stream &x = p.s[s];
  if (!(x.flags & kBrief)) {
    Found f = find_rare(p, s, v.first, v.n, v.step, pivots, entry, t);
    return brief_of(f);
  }
  Timestamps timestamps = {
      pivots, times_of(x, v, entry), x.times_row, v.n, v.step, kI64, kNanoseconds};
  return find_brief(timestamps, x.max_gap, x.edge == kMask, t);
}

// find_all supports every mode.
DEVICE Found find_all(const Fuse &p, const char *shared, i32 s0, i32 s, i64 entry, i64 t) {
  const Stream &x = p.s[s0 + s];
  Span v = span(p, shared, s0, s);
  const i64 *pivots = (const i64 *)(shared + p.pivots) + (x.pivots - p.s[s0].pivots);
  Timestamps timestamps = {
      pivots, times_of(x, v, entry), x.times_row, v.n, v.step, time_type(x), p.clock};
  Way way = {x.mode, x.edge, x.max_gap, 0, 0, p.epsilon};
  if (x.extra >= 0) {
    const Extra *e = (const Extra *)(p.table + x.extra);
    way.before = e->before;
    way.after = e->after;
  }
  return find_row<true>(timestamps, way, t);
}

DEVICE void set_valid(const Fuse &p, i64 entry, i32 row, i32 s, u8 valid) {
  p.valid[entry * p.valid_entry + row * p.valid_row + (p.first + s) * p.valid_stream] = valid;
}

// plan_tile plans target rows from … from+n-1 of an entry for streams s0 … s0+streams-1. It stores
// spans, plan rows (by target row, then stream) and pivots in shared memory. All threads must pass
// its barriers.
template <bool ALL>
struct RowOf {
  typedef Row type;
};
template <>
struct RowOf<true> {
  typedef WideRow type;
};

template <bool ALL>
DEVICE void plan_tile(const Fuse &p, char *shared, i32 s0, i32 streams, i64 entry, i32 from, i32 n,
    bool writes_valid, const Ahead &a) {
  typename RowOf<ALL>::type *plan = (typename RowOf<ALL>::type *)(shared + p.plan);
  i32 thread = threadIdx.x, todo = n * streams;
  i64 t = 0;
  if (a.target != nullptr) t = load_time(a.target, p.time_type, p.clock);
  gather(p, shared, s0, streams, entry, a);
#pragma unroll 1
  for (i32 i = thread; i < todo; i += blockDim.x) {
    i32 r = streams == 1 ? i : i / streams, s = i - r * streams;
    if (i != thread)
      t = load_time(
          p.targets + entry * p.targets_entry + (from + r) * p.targets_row, p.time_type, p.clock);
    bool valid;
    if constexpr (ALL) {
      Found f = find_all(p, shared, s0, s, entry, t);
      set_row(plan[i], f);
      valid = f.valid != 0;
    } else {
      const i64 *pivots = (const i64 *)(shared + p.pivots) + (p.s[s0 + s].pivots - p.s[s0].pivots);
      Brief f = find_at(p, s0 + s, span(p, shared, s0, s), pivots, entry, t);
      set_row(plan[i], f);
      valid = f.valid;
    }
    if (writes_valid) set_valid(p, entry, from + r, s0 + s, valid);
  }
  __syncthreads();
}
