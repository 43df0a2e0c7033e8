// Small FuseOps, whose cost is the cost of a launch. Each thread computes one vector of columns of
// one target row, directly from memory. It uses no shared memory, no barrier and usually no search.
// It guesses the place of its target from even spacing, and checks the guess with the timestamps
// around it. (Reading the samples of the guess together with the timestamps gains 5 % for even
// spacing and loses as much otherwise, so they are read afterwards.)
#pragma once
#include "lanes.cuh"

#ifndef DIRECT_STREAMS
#define DIRECT_STREAMS 4
#endif

struct DirectStream {
  const char *values, *times;
  const char *rows;           // lengths or offsets, int64
  i64 entry, row;             // strides between entries and rows of values, in bytes
  i64 times_entry, times_row; // strides in bytes
  i64 max_gap;
  i64 out;                  // byte offset of the first column in a row of out
  i64 rows_step;            // stride between lengths or offsets, in bytes
  i32 n, vector;            // vector: number of its first vector in a row
  i32 a, b, entries, plane; // normalization: as in Extra
  u8 type, mode, edge, flags;
  u8 norm, pad[7];
};

// Divisor divides numbers below 2^31 without a division: n / d is n·m >> shift.
struct Divisor {
  u32 m, shift;
};

struct Direct {
  const char *targets; // as in Fuse, up to table
  char *out;
  u8 *valid;
  u64 *counts;
  const char *table;
  u32 total, vectors, rows; // number of threads; vectors in a row; target rows of an entry
  i32 streams;
  Divisor by_vectors, by_rows;
  i64 targets_entry, targets_row;           // strides in bytes
  i64 out_entry, out_row;                   // strides in bytes
  i64 valid_entry, valid_row, valid_stream; // strides in bytes
  i32 first;                                // number of the first stream, in valid
  u8 out_type, pad[3];
  DirectStream s[DIRECT_STREAMS];
};

DEVICE u32 divided(u32 n, Divisor d) { return (u32)((u64)n * d.m >> d.shift); }

// Spot locates the data of a thread's target row.
struct Spot {
  const char *times, *values; // of the entry; values starts at the thread's columns
  i32 n;
};

DEVICE i64 timestamp_at(const DirectStream &x, const Spot &o, i32 i) {
  return load_timestamp(o.times + i * x.times_row);
}

// set_spot limits lengths and offsets to the existing rows, like span_of, because they may be
// wrong.
DEVICE void set_spot(Spot &o, const DirectStream &x, i64 entry) {
  o.n = x.n;
  o.times = x.times + entry * x.times_entry;
  o.values = x.values + entry * x.entry;
  if ((x.flags & (kLengths | kOffsets)) == 0) return;
  i64 first = load_timestamp(x.rows + entry * x.rows_step);
  if (x.flags & kLengths) {
    o.n = (i32)min(max(first, 0ll), (i64)x.n);
    return;
  }
  first = min(max(first, 0ll), x.entry); // x.entry: number of rows
  o.n = (i32)min(max(load_timestamp(x.rows + (entry + 1) * x.rows_step) - first, 0ll),
      min(x.entry - first, 0x7fffffffll));
  o.times = x.times + first * x.times_row;
  o.values = x.values + first * x.row;
}

// search returns the last timestamp ≤ t. Timestamp 0 is ≤ t and the last one is not. k is a wrong
// guess; right means that timestamp k+1 is ≤ t.
DEVICE i32 search(const DirectStream &x, const Spot &o, i64 t, i32 k, bool right) {
  i32 lo = right ? k + 1 : 0, hi = right ? o.n - 1 : k, step = 1;
  if (right) {
#pragma unroll 1
    while (step < hi - lo && timestamp_at(x, o, lo + step) <= t)
      lo += step, step = min(step, 1 << 29) * 2;
    if (step < hi - lo) hi = lo + step;
  } else {
#pragma unroll 1
    while (step < hi - lo && timestamp_at(x, o, hi - step) > t)
      hi -= step, step = min(step, 1 << 29) * 2;
    if (step < hi - lo) lo = hi - step;
  }
#pragma unroll 1
  while (hi - lo > 1) {
    i32 m = (i32)((u32)(lo + hi) >> 1);
    if (timestamp_at(x, o, m) <= t) lo = m;
    else hi = m;
  }
  return lo;
}

// Pair is the two samples of a row, and how they are combined.
template <int BYTES>
struct Pair {
  Words<BYTES> a, b;
  float w; // 0: the row has the bits of a
  u8 zero, valid;
};

template <int BYTES>
DEVICE void load_pair(Pair<BYTES> &p, const DirectStream &x, const Spot &o, i32 k) {
  p.a = load_once<BYTES>(o.values + k * x.row);
  p.b = load_once<BYTES>(o.values + min(k + 1, o.n - 1) * x.row);
}

template <int BYTES>
DEVICE Pair<BYTES> find_pair(const DirectStream &x, const Spot &o, i64 t) {
  Pair<BYTES> p;
  i32 last = o.n - 1;
  i64 begin = timestamp_at(x, o, 0), end = timestamp_at(x, o, last);
  i32 k = __float2int_rz(
      __fmul_rn(about(__ll2float_rn(t - begin), __ll2float_rn(end - begin)), (float)last));
  k = min(max(k, 0), max(last - 1, 0));
  if (t >= end) k = last; // of equal timestamps, use the last
  i64 a = timestamp_at(x, o, k), b = timestamp_at(x, o, min(k + 1, last));
  // timestamps are rarely further from even spacing
  i64 before = timestamp_at(x, o, max(k - 1, 0)), after = timestamp_at(x, o, min(k + 2, last));
  bool inside = t >= begin && t < end;
  if (inside && (t < a || t >= b)) {
    bool right = t >= b;
    if (right && t < after) {
      k++, a = b, b = after;
    } else if (!right && t >= before) {
      k--, b = a, a = before;
    } else {
      k = search(x, o, t, k, right);
      a = timestamp_at(x, o, k);
      b = timestamp_at(x, o, k + 1);
    }
  }
  load_pair(p, x, o, k);
  p.w = 0;
  p.valid = inside || t == end;
  p.zero = !p.valid && x.edge == kMask;
  i64 part = t - a, whole = b - a;
  if (!inside || part == 0) return p;
  i64 gap = whole;
  if (x.mode == kLinear) {
    p.w = weight(part, whole);
  } else {
    bool right = x.mode == kNext || (x.mode == kNearest && part > whole - part);
    gap = right ? whole - part : part;
    if (right) p.a = p.b;
  }
  if (x.max_gap != 0 && gap > x.max_gap) {
    p.valid = 0;
    p.zero = x.edge == kMask;
  }
  return p;
}

// blended computes E values in float32.
template <u8 T, int E>
DEVICE void blended(const Pair<E * Of<T>::size> &p, float *x) {
  float y[E];
  Of<T>::template open<E>(p.a, x);
  Of<T>::template open<E>(p.b, y);
#pragma unroll
  for (int i = 0; i < E; i++) x[i] = p.w == 0 ? x[i] : __fmaf_rn(p.w, __fsub_rn(y[i], x[i]), x[i]);
}

template <u8 T, int E>
DEVICE void store_blended(char *to, const Pair<E * Of<T>::size> &p) {
  float x[E];
  blended<T, E>(p, x);
  Words<E * Of<T>::size> r = Of<T>::template close<E>(x);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(r.w) / 4); i++)
    r.w[i] = p.zero ? 0 : p.w == 0 ? p.a.w[i] : r.w[i];
  store_once<E * Of<T>::size>(to, r);
}

// Scale is the normalization of a thread's columns.
template <int E>
struct Scale {
  float a[E], b[E];
  u8 norm;
};

template <int E>
DEVICE void set_scale(Scale<E> &f, const char *table, const DirectStream &x, i32 column) {
  f.norm = x.norm;
#pragma unroll
  for (int i = 0; i < E; i++) f.a[i] = f.b[i] = 0;
  if (f.norm == 0) return;
  const char *a = table + x.a, *b = table + x.b; // 16-aligned, as columns are
  if (x.plane == 1 && column + E <= x.entries) {
    Words<E * 4> v = load_once<E * 4>(a + column * 4), w = load_once<E * 4>(b + column * 4);
#pragma unroll
    for (int i = 0; i < E; i++) f.a[i] = real(v.w[i]), f.b[i] = real(w.w[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < E; i++) {
    u32 k = (u32)(column + i) / (u32)x.plane % (u32)x.entries;
    f.a[i] = ((const float *)a)[k];
    f.b[i] = ((const float *)b)[k];
  }
}

template <int E>
DEVICE void scale_row(const Scale<E> &f, float *x) {
  if (f.norm == 0) return;
#pragma unroll
  for (int i = 0; i < E; i++) {
    float d = __fsub_rn(x[i], f.a[i]);
    if (f.norm == 2) d = __fadd_rn(d, d);
    d = __fdiv_rn(d, f.b[i]);
    if (f.norm == 2) d = __fsub_rn(d, 1.0f);
    x[i] = f.b[i] == 0 ? 0.0f : d; // a constant channel becomes 0
  }
}

template <u8 T, int E>
DEVICE void store_scaled(char *to, u8 type, const Pair<E * Of<T>::size> &p, const Scale<E> &f) {
  float x[E];
  blended<T, E>(p, x);
  scale_row<E>(f, x);
#pragma unroll
  for (int i = 0; i < E; i++) x[i] = p.zero ? 0.0f : x[i]; // +0 is zero bits in each type
  if (type == kF32) store_once<E * 4>(to, Of<kF32>::close<E>(x));
  else if (type == kBF16) store_once<E * 2>(to, Of<kBF16>::close<E>(x));
  else store_once<E * 2>(to, Of<kF16>::close<E>(x));
}

template <int BYTES>
DEVICE Pair<BYTES> pair_of(const DirectStream &x, const Spot &o, i64 t) {
  if (o.n > 0) return find_pair<BYTES>(x, o, t);
  Pair<BYTES> p = {};
  p.zero = 1; // without samples, rows are zeros under every policy
  return p;
}

// Cell locates a thread's vector in the result.
struct Cell {
  i64 entry;
  u32 row;
  i32 s, vector; // s: stream; vector: number of the vector within its columns
};

// direct_cell returns the cell of a thread. It reads only parameters.
template <bool MANY>
DEVICE Cell direct_cell(const Direct &p, u32 id) {
  u32 line = divided(id, p.by_vectors), entry = divided(line, p.by_rows);
  Cell c = {entry, line - entry * p.rows, 0, (i32)(id - line * p.vectors)};
  if (MANY) {
#pragma unroll
    for (i32 i = 1; i < DIRECT_STREAMS; i++) c.s += i < p.streams && c.vector >= p.s[i].vector;
    c.vector -= p.s[c.s].vector;
  }
  return c;
}

// direct moves or blends. With SCALED it also normalizes and casts.
template <u8 T, int E, bool MANY, bool SCALED>
DEVICE void direct(const Direct &p) {
  const int size = E * Of<T>::size;
  let_next_grid_start();
  u32 id = blockIdx.x * blockDim.x + threadIdx.x;
  Cell c = direct_cell<MANY>(p, id);
  const DirectStream &x = p.s[MANY ? c.s : 0];
  Scale<E> scale;
  // the table was written before any grid, so it can be read before the wait
  if (SCALED && id < p.total) set_scale<E>(scale, p.table, x, c.vector * E);
  wait_for_previous_grid();
  if (id >= p.total) return;
  Spot o;
  i64 t = load_timestamp(p.targets + c.entry * p.targets_entry + c.row * p.targets_row);
  set_spot(o, x, c.entry);
  o.values += c.vector * size;
  Pair<size> pair = pair_of<size>(x, o, t);
  char *to = p.out + c.entry * p.out_entry + c.row * p.out_row + x.out;
  if (SCALED)
    store_scaled<T, E>(to + c.vector * (E * (p.out_type == kF32 ? 4 : 2)), p.out_type, pair, scale);
  else store_blended<T, E>(to + c.vector * size, pair);
  if (p.valid != nullptr && c.vector == 0)
    p.valid[c.entry * p.valid_entry + c.row * p.valid_row + (p.first + c.s) * p.valid_stream] =
        pair.valid;
}
