// The fast kernels of FuseOp: adjacent columns, linear or copied. A name has the columns per
// thread, "staged" if whole entries pass through shared memory, and "mapped" for an epilogue or
// another output type.
#include "staged.cuh"

// Place is the work of a thread in a tile. It is computed before the wait for the previous grid.
template <int E>
struct Place {
  i64 entry;
  i32 chunk, from, n, s, column;
  bool there;
  char *to;
  Ahead ahead;
};

template <int E>
DEVICE Place<E> place_of(const Fuse &p, i64 work, i32 lane, i32 lanes, i32 column) {
  Place<E> w;
  i64 q = p.chunks == 1 ? work : work / p.chunks;
  w.chunk = (i32)(work - q * p.chunks);
  w.entry = p.tiles == 1 ? q : q / p.tiles;
  w.from = (i32)(q - w.entry * p.tiles) * p.tile;
  w.n = min(p.tile, p.rows - w.from);
  i32 v = w.chunk * p.chunk + column;
  w.s = 0;
#pragma unroll 1
  while (w.s + 1 < p.streams && v >= p.s[w.s + 1].vector) w.s++;
  w.column = (v - p.s[w.s].vector) * E;
  w.there = lane < lanes && v < p.vectors;
  w.to = p.out + w.entry * p.out_entry + w.from * p.out_row + p.s[w.s].out +
         w.column * size_of(p.out_type);
  w.ahead = look_ahead(p, 0, p.streams, w.entry, w.from, w.n);
  return w;
}

// Each block has a tile of target rows of one entry and p.chunk vectors of columns, at most one per
// thread.
template <int E, bool MAP>
DEVICE void fuse_tiles(const Fuse &p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  u32 overflow = 0;
  i32 lanes = (i32)blockDim.x / p.chunk, lane = (i32)threadIdx.x / p.chunk,
      column = (i32)threadIdx.x - lane * p.chunk;
  Place<E> w = place_of<E>(p, blockIdx.x, lane, lanes, column);
  known(w.to);
  known(w.ahead.target);
  known(w.ahead.timestamp);
  known(p.s[w.s].values);
  wait_for_previous_grid();
#pragma unroll 1
  for (i64 work = blockIdx.x;;) {
    plan_tile<false>(
        p, shared, 0, p.streams, w.entry, w.from, w.n, p.valid != nullptr && w.chunk == 0, w.ahead);
    if (w.there) {
      const Stream &x = p.s[w.s];
      Span rows = span(p, shared, 0, w.s);
      Lane l = {values_of(x, rows, w.entry) + w.column * size_of(x.type), w.to, (i32)x.row,
          (i32)p.out_row, (const Row *)(shared + p.plan) + w.s, p.streams, w.n, lane, lanes};
      if (rows.n == 0) {
        zero_rows(l, E * size_of(p.out_type));
      } else if constexpr (MAP) {
        Finish<E> f;
        set_finish<E>(f, p.table, x.extra, w.column, p.out_type);
        map_lane<E>(l, x.type, f, p.counts != nullptr, overflow);
      } else {
        lerp_lane<E>(l, x.type);
      }
    }
    work += gridDim.x;
    if (work >= p.work) break;
    w = place_of<E>(p, work, lane, lanes, column);
    __syncthreads();
  }
  if (MAP && p.counts != nullptr) add_counts(p.counts, Casts{overflow, 0});
}

#ifndef BOUNDS
#define BOUNDS
#endif
#define KERNEL extern "C" __global__ void BOUNDS

KERNEL fuse_8(const __grid_constant__ Fuse p) { fuse_tiles<8, false>(p); }
KERNEL fuse_4(const __grid_constant__ Fuse p) { fuse_tiles<4, false>(p); }
KERNEL fuse_1(const __grid_constant__ Fuse p) { fuse_tiles<1, false>(p); }
KERNEL fuse_4_mapped(const __grid_constant__ Fuse p) { fuse_tiles<4, true>(p); }
KERNEL fuse_1_mapped(const __grid_constant__ Fuse p) { fuse_tiles<1, true>(p); }
KERNEL fuse_4_staged(const __grid_constant__ Fuse p) { fuse_staged<4>(p); }
KERNEL fuse_small_rows(const __grid_constant__ Fuse p) { fuse_small<false>(p); }
KERNEL fuse_small_rows_mapped(const __grid_constant__ Fuse p) { fuse_small<true>(p); }
