// ApplyOp for parts with adjacent columns: rows are moved, cast, normalized or blended.
#include "apply.cuh"

// move_rows moves rows. Each thread moves BYTES bytes of a row.
template <int BYTES>
DEVICE void move_rows(const Lane &l, bool planned, i32 from) {
#pragma unroll 1
  for (i32 r = l.first; r < l.n; r += l.step * UNROLL) {
    Words<BYTES> a[UNROLL];
    u32 keep[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      i32 at = min(r + u * l.step, l.n - 1), k = planned ? l.plan[at].left : from + at;
      keep[u] = planned ? l.plan[at].keep : ~0u;
      a[u] = load_once<BYTES>(l.from + (i64)k * l.row);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      i32 at = r + u * l.step;
#pragma unroll
      for (int i = 0; i < (int)(sizeof(a[u].w) / 4); i++) a[u].w[i] &= keep[u];
      if (at < l.n) store_once<BYTES>(l.to + (i64)at * l.out_row, a[u]);
    }
  }
}

// cast_rows computes row i from row i.
template <u8 T, int E>
DEVICE void cast_rows(const Lane &l, i32 from, const Finish<E> &f, bool counts, u32 &overflow) {
  const int size = E * Of<T>::size;
#pragma unroll 1
  for (i32 r = l.first; r < l.n; r += l.step * UNROLL) {
    Words<size> a[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      a[u] = load_once<size>(l.from + (i64)(from + min(r + u * l.step, l.n - 1)) * l.row);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      i32 at = r + u * l.step;
      if (at >= l.n) continue;
      float x[E];
      Of<T>::template open<E>(a[u], x);
      finish_row<T, E, false, kF32>(f, x);
      if (counts) overflow += count_row<E>(f.type, x);
      store_row<E>(l.to + (i64)at * l.out_row, f.type, x, ~0u);
    }
  }
}

template <int E>
DEVICE void apply_rows(
    const Apply &p, const Part &x, const Lane &l, i32 from, i32 column, u32 &overflow) {
  Finish<E> f;
  set_finish<E>(f, p.table, x.extra, column, x.out_type);
  bool counts = p.counts != nullptr;
  if (x.kind != nullptr) map_lane<E>(l, x.type, f, counts, overflow);
  else if (x.type == kU8) cast_rows<kU8, E>(l, from, f, counts, overflow);
  else if (x.type == kF32) cast_rows<kF32, E>(l, from, f, counts, overflow);
  else if (x.type == kBF16) cast_rows<kBF16, E>(l, from, f, counts, overflow);
  else cast_rows<kF16, E>(l, from, f, counts, overflow);
}

extern "C" __global__ void apply(const __grid_constant__ Apply p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  Row *plan = (Row *)shared;
  u32 overflow = 0;
  wait_for_previous_grid();
#pragma unroll 1
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    const Part &x = p.s[part_of(p, work)];
    i64 q = work - x.work;
    i32 chunk = (i32)(q % x.chunks), from = (i32)(q / x.chunks) * x.tile,
        n = min(x.tile, x.rows - from);
    i32 lanes = (i32)blockDim.x / x.chunk, lane = (i32)threadIdx.x / x.chunk,
        v = chunk * x.chunk + (i32)threadIdx.x - lane * x.chunk;
    if (x.kind != nullptr) {
#pragma unroll 1
      for (i32 i = threadIdx.x; i < n; i += blockDim.x)
        set_row(plan[i], brief_of(load_plan(p, x, from + i)));
      __syncthreads();
    }
    if (lane < lanes && v < x.vectors) {
      i32 size = x.moved ? 1 : size_of(x.type), out_size = x.moved ? 1 : size_of(x.out_type),
          c = v * x.vector;
      Lane l = {x.src + (i64)c * size, x.out + from * x.out_row + (i64)c * out_size, (i32)x.src_row,
          (i32)x.out_row, plan, 1, n, lane, lanes};
      bool planned = x.kind != nullptr;
      if (x.sources == 0 && planned) {
        zero_rows(l, x.vector * out_size);
      } else if (x.moved) {
        if (x.vector == 16) move_rows<16>(l, planned, from);
        else if (x.vector == 4) move_rows<4>(l, planned, from);
        else move_rows<1>(l, planned, from);
      } else if (x.vector == 4) {
        apply_rows<4>(p, x, l, from, c, overflow);
      } else {
        apply_rows<1>(p, x, l, from, c, overflow);
      }
    }
    if (work + gridDim.x < p.work) __syncthreads();
  }
  if (p.counts != nullptr) add_counts(p.counts, Casts{overflow, 0});
}
