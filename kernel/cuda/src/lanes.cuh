// Rows by columns: a thread owns E neighbouring columns and goes down the rows of a tile, several rows in flight.
#pragma once
#include "fuse.cuh"

#ifndef UNROLL
#define UNROLL 4
#endif

// ---- E values of one type as registers ----

template <u8 T> struct Of;
template <> struct Of<kF32> {
  static const int size = 4;
  template <int E> static __device__ __forceinline__ void open(const Words<E * 4> &r, float *x) {
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = real(r.w[i]);
  }
  template <int E> static __device__ __forceinline__ Words<E * 4> close(const float *x) {
    Words<E * 4> r;
#pragma unroll
    for (int i = 0; i < E; i++) r.w[i] = bits(x[i]);
    return r;
  }
};
template <> struct Of<kBF16> {
  static const int size = 2;
  template <int E> static __device__ __forceinline__ void open(const Words<E * 2> &r, float *x) {
    x[0] = bf16_low(r.w[0]);
#pragma unroll
    for (int i = 0; i + 1 < E; i += 2) x[i] = bf16_low(r.w[i / 2]), x[i + 1] = bf16_high(r.w[i / 2]);
  }
  template <int E> static __device__ __forceinline__ Words<E * 2> close(const float *x) {
    Words<E * 2> r;
    if (E == 1) r.w[0] = float_bf16(x[0]);
#pragma unroll
    for (int i = 0; i + 1 < E; i += 2) r.w[i / 2] = pack_bf16(x[i], x[i + 1]);
    return r;
  }
};
template <> struct Of<kF16> {
  static const int size = 2;
  template <int E> static __device__ __forceinline__ void open(const Words<E * 2> &r, float *x) {
    x[0] = f16_low(r.w[0]);
#pragma unroll
    for (int i = 0; i + 1 < E; i += 2) x[i] = f16_low(r.w[i / 2]), x[i + 1] = f16_high(r.w[i / 2]);
  }
  template <int E> static __device__ __forceinline__ Words<E * 2> close(const float *x) {
    Words<E * 2> r;
    if (E == 1) r.w[0] = float_f16(x[0]);
#pragma unroll
    for (int i = 0; i + 1 < E; i += 2) r.w[i / 2] = pack_f16(x[i], x[i + 1]);
    return r;
  }
};

template <> struct Of<kU8> {
  static const int size = 1;
  template <int E> static __device__ __forceinline__ void open(const Words<E> &r, float *x) {
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = (float)(r.w[i / 4] >> (8 * (i & 3)) & 0xff);
  }
};

// Lane is a thread's place in a tile: E neighbouring columns of one stream, every step-th row from first on.
struct Lane {
  const char *from;
  char *to;
  i32 row, out_row; // bytes
  const Row *plan;
  i32 plan_step, n; // rows of plan a target row; target rows
  i32 first, step;
};

// ---- the same type in and out ----

// lerp blends E values; weight 0 gives the stored bits (kernel K2).
template <u8 T, int E> DEVICE Words<E * Of<T>::size> lerp(const Words<E * Of<T>::size> &a, const Words<E * Of<T>::size> &b, float w) {
  float x[E], y[E];
  Of<T>::template open<E>(a, x);
  Of<T>::template open<E>(b, y);
#pragma unroll
  for (int i = 0; i < E; i++) x[i] = __fmaf_rn(w, __fsub_rn(y[i], x[i]), x[i]);
  Words<E * Of<T>::size> r = Of<T>::template close<E>(x);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(r.w) / 4); i++) r.w[i] = w == 0 ? a.w[i] : r.w[i];
  return r;
}

// load_pair reads both samples of UNROLL rows before the first is used. Rows beyond the last are the last again.
template <int BYTES, bool STAGE> DEVICE void load_pairs(const Lane &l, i32 r, Words<BYTES> *a, Words<BYTES> *b, float *w, u32 *zero) {
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    Row row = l.plan[min(r + u * l.step, l.n - 1) * l.plan_step];
    w[u] = row.w;
    zero[u] = row.left < 0;
    a[u] = b[u] = Words<BYTES>{};
    if (row.left >= 0) {
      const char *pa = l.from + (i64)row.left * l.row, *pb = l.from + (i64)row.right * l.row;
      a[u] = STAGE ? load_shared<BYTES>(pa) : load_once<BYTES>(pa);
      b[u] = STAGE ? load_shared<BYTES>(pb) : load_once<BYTES>(pb);
    }
  }
}

template <u8 T, int E, bool STAGE> DEVICE void lerp_rows(const Lane &l) {
  const int size = E * Of<T>::size;
  for (i32 r = l.first; r < l.n; r += l.step * UNROLL) {
    Words<size> a[UNROLL], b[UNROLL];
    float w[UNROLL];
    u32 zero[UNROLL];
    load_pairs<size, STAGE>(l, r, a, b, w, zero);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      i32 at = r + u * l.step;
      if (at < l.n) store_once<size>(l.to + (i64)at * l.out_row, lerp<T, E>(a[u], b[u], w[u]));
    }
  }
}

// ---- with an epilogue or another type out ----

// Finish is what happens to the values of a thread's columns before the only rounding: x/255, normalise, clip (kernel K10).
template <int E> struct Finish {
  float a[E], b[E], lo, hi;
  u8 norm, unit, clip, type;
};

template <int E> DEVICE void set_finish(Finish<E> &f, const char *table, i32 extra, i32 column, u8 type) {
  f.norm = f.unit = f.clip = 0;
  f.type = type;
  if (extra < 0) return;
  const Extra *x = (const Extra *)(table + extra);
  f.norm = x->norm;
  f.unit = x->unit;
  f.clip = x->clip;
  f.lo = x->clip_lo;
  f.hi = x->clip_hi;
  if (f.norm == 0) return;
  const float *a = (const float *)(table + x->a), *b = (const float *)(table + x->b);
  i32 plane = x->plane, entries = x->entries;
#pragma unroll
  for (int i = 0; i < E; i++) {
    i32 k = plane == 1 && column + i < entries ? column + i : (i32)((u32)(column + i) / (u32)plane % (u32)entries);
    f.a[i] = a[k];
    f.b[i] = b[k];
  }
}

DEVICE float normalized(u8 norm, float x, float a, float b) {
  float d = __fsub_rn(x, a);
  if (norm == 2) d = __fadd_rn(d, d);
  d = __fdiv_rn(d, b);
  if (norm == 2) d = __fsub_rn(d, 1.0f);
  return b == 0 ? 0.0f : d; // a constant channel
}

template <int E> DEVICE void finish_row(const Finish<E> &f, float *x) {
  if (f.unit) {
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = __fdiv_rn(x[i], 255.0f);
  }
  if (f.norm) {
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = normalized(f.norm, x[i], f.a[i], f.b[i]);
  }
  if (f.clip) {
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = x[i] < f.lo ? f.lo : x[i] > f.hi ? f.hi : x[i];
  }
}

template <int E> DEVICE void store_row(char *to, u8 type, const float *x, bool zero) {
  if (type == kF32) {
    Words<E * 4> r = Of<kF32>::close<E>(x);
#pragma unroll
    for (int i = 0; i < E; i++) r.w[i] = zero ? 0 : r.w[i];
    store_once<E * 4>(to, r);
    return;
  }
  Words<E * 2> r = type == kBF16 ? Of<kBF16>::close<E>(x) : Of<kF16>::close<E>(x);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(r.w) / 4); i++) r.w[i] = zero ? 0 : r.w[i];
  store_once<E * 2>(to, r);
}

// count_row counts finite values that the type of the result has no room for.
template <int E> DEVICE u32 count_row(u8 type, const float *x) {
  u32 n = 0;
#pragma unroll
  for (int i = 0; i < E; i++) {
    u32 magnitude = bits(x[i]) & 0x7fffffffu;
    n += magnitude < 0x7f800000u && magnitude >= (type == kF16 ? 0x477ff000u : type == kBF16 ? 0x7f7f8000u : 0x7f800000u);
  }
  return n;
}

template <u8 T, int E, bool STAGE> DEVICE void map_rows(const Lane &l, const Finish<E> &f, bool counts, u32 &overflow) {
  const int size = E * Of<T>::size;
  for (i32 r = l.first; r < l.n; r += l.step * UNROLL) {
    Words<size> a[UNROLL], b[UNROLL];
    float w[UNROLL];
    u32 zero[UNROLL];
    load_pairs<size, STAGE>(l, r, a, b, w, zero);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      i32 at = r + u * l.step;
      if (at >= l.n) continue;
      float x[E], y[E];
      Of<T>::template open<E>(a[u], x);
      Of<T>::template open<E>(b[u], y);
#pragma unroll
      for (int i = 0; i < E; i++) x[i] = w[u] == 0 ? x[i] : __fmaf_rn(w[u], __fsub_rn(y[i], x[i]), x[i]);
      finish_row<E>(f, x);
      if (counts && !zero[u]) overflow += count_row<E>(f.type, x);
      store_row<E>(l.to + (i64)at * l.out_row, f.type, x, zero[u]);
    }
  }
}

template <int E, bool STAGE> DEVICE void map_lane(const Lane &l, u8 type, const Finish<E> &f, bool counts, u32 &overflow) {
  if (type == kF32) map_rows<kF32, E, STAGE>(l, f, counts, overflow);
  else if (type == kBF16) map_rows<kBF16, E, STAGE>(l, f, counts, overflow);
  else if (type == kF16) map_rows<kF16, E, STAGE>(l, f, counts, overflow);
  else map_rows<kU8, E, STAGE>(l, f, counts, overflow);
}

template <int E, bool STAGE> DEVICE void lerp_lane(const Lane &l, u8 type) {
  if (type == kBF16) lerp_rows<kBF16, E, STAGE>(l);
  else if (type == kF16) lerp_rows<kF16, E, STAGE>(l);
  else if constexpr (E <= 4) lerp_rows<kF32, E, STAGE>(l);
}
