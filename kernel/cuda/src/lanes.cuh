// Rows by columns: each thread owns E adjacent columns and handles the rows of a tile, several at a
// time.
#pragma once
#include "fuse.cuh"

#ifndef UNROLL
#define UNROLL 4
#endif

// ---- E values of one type as registers ----

template <u8 T>
struct Of;
template <>
struct Of<kF32> {
  static const int size = 4;
  template <int E>
  static __device__ __forceinline__ void open(const Words<E * 4> &r, float *x) {
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = real(r.w[i]);
  }
  template <int E>
  static __device__ __forceinline__ Words<E * 4> close(const float *x) {
    Words<E * 4> r;
#pragma unroll
    for (int i = 0; i < E; i++) r.w[i] = bits(x[i]);
    return r;
  }
};
#define HALF(T, type)                                                                          \
  template <>                                                                                  \
  struct Of<T> {                                                                               \
    static const int size = 2;                                                                 \
    template <int E>                                                                           \
    static __device__ __forceinline__ void open(const Words<E * 2> &r, float *x) {             \
      x[0] = type##_low(r.w[0]);                                                               \
      _Pragma("unroll") for (int i = 0; i + 1 < E; i += 2) x[i] = type##_low(r.w[i / 2]),      \
                                                           x[i + 1] = type##_high(r.w[i / 2]); \
    }                                                                                          \
    template <int E>                                                                           \
    static __device__ __forceinline__ Words<E * 2> close(const float *x) {                     \
      Words<E * 2> r;                                                                          \
      if (E == 1) r.w[0] = float_##type(x[0]);                                                 \
      _Pragma("unroll") for (int i = 0; i + 1 < E; i += 2) r.w[i / 2] =                        \
          pack_##type(x[i], x[i + 1]);                                                         \
      return r;                                                                                \
    }                                                                                          \
  };
HALF(kBF16, bf16)
HALF(kF16, f16)

template <>
struct Of<kU8> {
  static const int size = 1;
  template <int E>
  static __device__ __forceinline__ void open(const Words<E> &r, float *x) {
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = (float)(r.w[i / 4] >> (8 * (i & 3)) & 0xff);
  }
};

// Lane is the work of a thread in a tile: E adjacent columns of one stream, and every step-th row
// from first on.
struct Lane {
  const char *from; // row 0, which must exist
  char *to;
  i32 row, out_row; // strides in bytes
  const Row *plan;
  i32 plan_step, n; // plan rows per target row; number of target rows
  i32 first, step;
};

// ---- the same type in and out ----

// blend computes E values between two samples. Weight 0 gives the bits of the first (kernel.K2).
template <u8 T, int E>
DEVICE void blend(
    const Words<E * Of<T>::size> &a, const Words<E * Of<T>::size> &b, float w, float *x) {
  float y[E];
  Of<T>::template open<E>(a, x);
  Of<T>::template open<E>(b, y);
#pragma unroll
  for (int i = 0; i < E; i++) x[i] = __fmaf_rn(w, __fsub_rn(y[i], x[i]), x[i]);
}

template <u8 T, int E>
DEVICE Words<E * Of<T>::size> lerp(
    const Words<E * Of<T>::size> &a, const Words<E * Of<T>::size> &b, float w, u32 keep = ~0u) {
  float x[E];
  blend<T, E>(a, b, w, x);
  Words<E * Of<T>::size> r = Of<T>::template close<E>(x);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(r.w) / 4); i++) r.w[i] = (w == 0 ? a.w[i] : r.w[i]) & keep;
  return r;
}

// Pairs holds both samples of UNROLL rows. All are loaded before the first is used, without a
// branch. Rows beyond the last repeat the last.
template <int BYTES>
struct Pairs {
  Words<BYTES> a[UNROLL], b[UNROLL];
  float w[UNROLL];
  u32 keep[UNROLL];
};

template <int BYTES>
DEVICE void load_pairs(const Lane &l, i32 r, Pairs<BYTES> &p) {
  Row row[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) row[u] = l.plan[min(r + u * l.step, l.n - 1) * l.plan_step];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const char *a = l.from + (i64)row[u].left * l.row, *b = l.from + (i64)row[u].right * l.row;
    p.a[u] = load_once<BYTES>(a);
    p.b[u] = load_once<BYTES>(b);
    p.w[u] = row[u].w;
    p.keep[u] = row[u].keep;
  }
}

template <u8 T, int E>
DEVICE void lerp_rows(const Lane &l) {
  const int size = E * Of<T>::size;
#pragma unroll 1
  for (i32 r = l.first; r < l.n; r += l.step * UNROLL) {
    Pairs<size> p;
    load_pairs<size>(l, r, p);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      i32 at = r + u * l.step;
      if (at < l.n)
        store_once<size>(l.to + (i64)at * l.out_row, lerp<T, E>(p.a[u], p.b[u], p.w[u], p.keep[u]));
    }
  }
}

// zero_rows writes the rows of a stream without samples.
DEVICE void zero_rows(const Lane &l, i32 bytes) {
#pragma unroll 1
  for (i32 r = l.first; r < l.n; r += l.step)
    for (i32 i = 0; i < bytes; i++) l.to[(i64)r * l.out_row + i] = 0;
}

// ---- with an epilogue or another type out ----

// Finish is what happens to the values of a thread's columns before the only rounding: x/255,
// normalize, clip (kernel.K10).
template <int E>
struct Finish {
  float a[E], b[E], y[E], lo, hi; // y: 1/b
  u32 live[E];                    // all ones, or 0: a constant channel, whose result is 0
  u8 norm, unit, clip, type;
  bool tame; // every b is 0 or far from the limits of the exponent
};

template <int E>
DEVICE void set_finish(Finish<E> &f, const char *table, i32 extra, i32 column, u8 type) {
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
    i32 k = plane == 1 && column + i < entries
                ? column + i
                : (i32)((u32)(column + i) / (u32)plane % (u32)entries);
    f.a[i] = a[k];
    f.b[i] = b[k];
    f.live[i] = f.b[i] == 0 ? 0u : ~0u;
    if (f.b[i] == 0) f.b[i] = 1;
    f.y[i] = __frcp_rn(f.b[i]);
  }
  f.tame = x->tame;
}

// quotient_by returns x / b, correctly rounded, from y = 1/b. A quotient with an error below one
// unit is corrected by its exact remainder times y (Markstein). x and b must not be near the limits
// of the exponent, and 0 would lose its sign.
DEVICE float quotient_by(float x, float b, float y) {
  float q = __fmul_rn(x, y);
  q = __fmaf_rn(__fmaf_rn(-q, b, x), y, q);
  return __fmaf_rn(__fmaf_rn(-q, b, x), y, q);
}
DEVICE bool is_tame(float x) {
  return fabsf(x) >= 8.6736174e-19f && fabsf(x) <= 1.1529215e18f;
} // 2^-60 … 2^60

COLD float divide(float x, float b) { return __fdiv_rn(x, b); }

// finish_row applies the epilogue. PLAIN means only (x-a)/b, with tame denominators.
template <u8 T, int E, bool PLAIN, u8 OUT>
DEVICE void finish_row(const Finish<E> &f, float *x) {
  if (!PLAIN && f.unit) {
#pragma unroll
    for (int i = 0; i < E; i++)
      x[i] = T == kU8 ? quotient_by(x[i], 255.0f, 1.0f / 255.0f) : divide(x[i], 255.0f);
  }
  if (PLAIN && OUT == kBF16) {
    // x·(1/b) has an error of at most two units of float32. After rounding to bfloat16 the error is
    // visible only near the middle of two bfloat16 numbers.
    bool clear = true;
    float q[E];
#pragma unroll
    for (int i = 0; i < E; i++) {
      x[i] = __fsub_rn(x[i], f.a[i]);
      q[i] = __fmul_rn(x[i], f.y[i]);
      clear = clear && ((bits(q[i]) + 0x8004u) & 0xfff8u) != 0;
    }
    if (!clear) {
#pragma unroll
      for (int i = 0; i < E; i++) q[i] = divide(x[i], f.b[i]);
    }
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = real(bits(q[i]) & f.live[i]);
    return;
  }
  if (PLAIN || f.norm) {
    bool tame = PLAIN || f.tame;
#pragma unroll
    for (int i = 0; i < E; i++) {
      x[i] = __fsub_rn(x[i], f.a[i]);
      if (!PLAIN && f.norm == 2) x[i] = __fadd_rn(x[i], x[i]);
      tame = tame && is_tame(x[i]);
    }
    float q[E];
#pragma unroll
    for (int i = 0; i < E; i++) q[i] = quotient_by(x[i], f.b[i], f.y[i]);
    if (!tame) {
#pragma unroll
      for (int i = 0; i < E; i++)
        q[i] = x[i] == 0 && f.tame ? __fmul_rn(x[i], f.y[i]) : divide(x[i], f.b[i]);
    }
#pragma unroll
    for (int i = 0; i < E; i++) {
      x[i] = q[i];
      if (!PLAIN && f.norm == 2) x[i] = __fsub_rn(x[i], 1.0f);
      x[i] = real(bits(x[i]) & f.live[i]);
    }
  }
  if (!PLAIN && f.clip) {
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = x[i] < f.lo ? f.lo : x[i] > f.hi ? f.hi : x[i];
  }
}

template <int E>
DEVICE void store_row(char *to, u8 type, const float *x, u32 keep) {
  if (type == kF32) {
    Words<E * 4> r = Of<kF32>::close<E>(x);
#pragma unroll
    for (int i = 0; i < E; i++) r.w[i] &= keep;
    store_once<E * 4>(to, r);
    return;
  }
  Words<E * 2> r = type == kBF16 ? Of<kBF16>::close<E>(x) : Of<kF16>::close<E>(x);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(r.w) / 4); i++) r.w[i] &= keep;
  store_once<E * 2>(to, r);
}

// count_row counts finite values that overflow the type of the result.
template <int E>
DEVICE u32 count_row(u8 type, const float *x) {
  u32 n = 0;
#pragma unroll
  for (int i = 0; i < E; i++) {
    u32 magnitude = bits(x[i]) & 0x7fffffffu;
    n += magnitude < 0x7f800000u && magnitude >= (type == kF16       ? 0x477ff000u
                                                     : type == kBF16 ? 0x7f7f8000u
                                                                     : 0x7f800000u);
  }
  return n;
}

template <u8 T, int E, bool PLAIN, u8 OUT>
DEVICE void map_rows(const Lane &l, const Finish<E> &f, bool counts, u32 &overflow) {
  const int size = E * Of<T>::size;
#pragma unroll 1
  for (i32 r = l.first; r < l.n; r += l.step * UNROLL) {
    Pairs<size> p;
    load_pairs<size>(l, r, p);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      i32 at = r + u * l.step;
      float x[E], v[E];
      blend<T, E>(p.a[u], p.b[u], p.w[u], x);
      Of<T>::template open<E>(p.a[u], v);
#pragma unroll
      for (int i = 0; i < E; i++) x[i] = p.w[u] == 0 ? v[i] : x[i];
      finish_row<T, E, PLAIN, OUT>(f, x);
      if (at >= l.n) continue;
      if (!PLAIN && counts && p.keep[u]) overflow += count_row<E>(f.type, x);
      store_row<E>(l.to + (i64)at * l.out_row, f.type, x, p.keep[u]);
    }
  }
}

template <u8 T, int E>
DEVICE void map_type(const Lane &l, const Finish<E> &f, bool counts, u32 &overflow) {
  bool plain = T != kU8 && f.norm == 1 && f.tame && !f.unit && !f.clip && !counts;
  if (plain && f.type == kBF16) map_rows<T, E, true, kBF16>(l, f, counts, overflow);
  else if (plain) map_rows<T, E, true, kF32>(l, f, counts, overflow);
  else map_rows<T, E, false, kF32>(l, f, counts, overflow);
}

template <int E>
DEVICE void map_lane(const Lane &l, u8 type, const Finish<E> &f, bool counts, u32 &overflow) {
  if (type == kF32) map_type<kF32, E>(l, f, counts, overflow);
  else if (type == kBF16) map_type<kBF16, E>(l, f, counts, overflow);
  else if (type == kF16) map_type<kF16, E>(l, f, counts, overflow);
  else map_type<kU8, E>(l, f, counts, overflow);
}

template <int E>
DEVICE void lerp_lane(const Lane &l, u8 type) {
  if (type == kBF16) lerp_rows<kBF16, E>(l);
  else if (type == kF16) lerp_rows<kF16, E>(l);
  else if constexpr (E <= 4) lerp_rows<kF32, E>(l);
}
