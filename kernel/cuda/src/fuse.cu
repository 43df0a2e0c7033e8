// The fast kernels of FuseOp: floating-point rows without gaps between columns, linear or moved.
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

// Lane is a thread's column of a tile: E neighbouring columns of one stream, every lanes-th row.
struct Lane {
  const char *from;
  char *to;
  i32 row, out_row; // bytes
  const Row *plan;
  i32 plan_step, n; // rows of plan a target row; target rows
  i32 first, step;
};

template <u8 T, int E, bool STAGE> DEVICE void lerp_rows(const Lane &l) {
  const int size = E * Of<T>::size;
  for (i32 r = l.first; r < l.n; r += l.step * UNROLL) {
    Words<size> a[UNROLL], b[UNROLL];
    float w[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      i32 at = min(r + u * l.step, l.n - 1);
      Row row = l.plan[at * l.plan_step];
      w[u] = row.w;
      a[u] = b[u] = Words<size>{};
      if (row.left >= 0) {
        const char *pa = l.from + (i64)row.left * l.row, *pb = l.from + (i64)row.right * l.row;
        a[u] = STAGE ? load_shared<size>(pa) : load_once<size>(pa);
        b[u] = STAGE ? load_shared<size>(pb) : load_once<size>(pb);
      }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      i32 at = r + u * l.step;
      if (at < l.n) store_once<size>(l.to + (i64)at * l.out_row, lerp<T, E>(a[u], b[u], w[u]));
    }
  }
}

template <int E, bool STAGE> DEVICE void fuse_tiles(const Fuse &p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  wait_for_previous_grid();
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    i64 q = p.chunks == 1 ? work : work / p.chunks;
    i32 chunk = (i32)(work - q * p.chunks);
    i64 entry = p.tiles == 1 ? q : q / p.tiles;
    i32 from = (i32)(q - entry * p.tiles) * p.tile;
    i32 n = min(p.tile, p.rows - from);
    plan_tile<STAGE>(p, shared, entry, from, n, p.valid != nullptr && chunk == 0);
    i32 first = chunk * p.chunk, vectors = min(p.chunk, p.vectors - first);
    i32 lanes = max(1, (i32)blockDim.x / vectors), threads = vectors >= (i32)blockDim.x ? blockDim.x : lanes * vectors;
    const Span *spans = (const Span *)shared;
    if ((i32)threadIdx.x < threads) {
      i32 lane = (i32)threadIdx.x / vectors, s = 0;
      for (i32 j = (i32)threadIdx.x - lane * vectors; j < vectors; j += threads) {
        i32 v = first + j;
        while (s + 1 < p.streams && v >= p.s[s + 1].vector) s++;
        const Stream &x = p.s[s];
        i32 c = v - x.vector, size = size_of(x.type);
        const char *values = values_of(x, spans[s], entry);
        Lane l = {STAGE ? shared + x.staged + staged_offset(values) : values, p.out + entry * p.out_entry + from * p.out_row + x.out + c * E * size,
                  (i32)x.row, (i32)p.out_row, (const Row *)(shared + p.plan) + s, p.streams, n, lane, lanes};
        l.from += c * E * size;
        if (x.type == kBF16) lerp_rows<kBF16, E, STAGE>(l);
        else if (x.type == kF16) lerp_rows<kF16, E, STAGE>(l);
        else if constexpr (E <= 4) lerp_rows<kF32, E, STAGE>(l);
      }
    }
    if (work + gridDim.x < p.work) __syncthreads();
  }
}

extern "C" __global__ void fuse_8(const __grid_constant__ Fuse p) { fuse_tiles<8, false>(p); }
extern "C" __global__ void fuse_4(const __grid_constant__ Fuse p) { fuse_tiles<4, false>(p); }
extern "C" __global__ void fuse_1(const __grid_constant__ Fuse p) { fuse_tiles<1, false>(p); }
extern "C" __global__ void fuse_8_staged(const __grid_constant__ Fuse p) { fuse_tiles<8, true>(p); }
extern "C" __global__ void fuse_4_staged(const __grid_constant__ Fuse p) { fuse_tiles<4, true>(p); }
extern "C" __global__ void fuse_1_staged(const __grid_constant__ Fuse p) { fuse_tiles<1, true>(p); }
