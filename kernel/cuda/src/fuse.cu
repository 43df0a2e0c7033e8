// The fast kernels of FuseOp: rows without gaps between columns, linear or moved. Names: columns a thread, "staged" where entries go through
// shared memory whole, "mapped" with an epilogue or another type out.
#include "staged.cuh"

// A block has a tile of target rows of one entry, and p.chunk vectors of columns, at most one a thread.
template <int E, bool MAP> DEVICE void fuse_tiles(const Fuse &p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  u32 overflow = 0;
  // All that needs no memory comes before the wait for the grid before.
  i32 lanes = (i32)blockDim.x / p.chunk, lane = (i32)threadIdx.x / p.chunk, column = (i32)threadIdx.x - lane * p.chunk;
  wait_for_previous_grid();
  if (at_fault(p)) return;
#pragma unroll 1
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    i64 q = p.chunks == 1 ? work : work / p.chunks;
    i32 chunk = (i32)(work - q * p.chunks), v = chunk * p.chunk + column, s = 0;
    i64 entry = p.tiles == 1 ? q : q / p.tiles;
    i32 from = (i32)(q - entry * p.tiles) * p.tile, n = min(p.tile, p.rows - from);
#pragma unroll 1
    while (s + 1 < p.streams && v >= p.s[s + 1].vector) s++;
    const Stream &x = p.s[s];
    i32 c = (v - x.vector) * E;
    char *to = p.out + entry * p.out_entry + from * p.out_row + x.out + c * size_of(p.out_type);
    plan_tile<Row, false>(p, shared, 0, p.streams, entry, from, n, p.valid != nullptr && chunk == 0);
    if (lane < lanes && v < p.vectors) {
      Span rows = span(p, shared, 0, s);
      Lane l = {values_of(x, rows, entry) + c * size_of(x.type), to, (i32)x.row, (i32)p.out_row,
                (const Row *)(shared + p.plan) + s, p.streams, n, lane, lanes};
      if (rows.n == 0) {
        zero_rows(l, E * size_of(p.out_type));
      } else if constexpr (MAP) {
        Finish<E> f;
        set_finish<E>(f, p.table, x.extra, c, p.out_type);
        map_lane<E, false>(l, x.type, f, p.counts != nullptr, overflow);
      } else {
        lerp_lane<E, false>(l, x.type);
      }
    }
    if (work + gridDim.x < p.work) __syncthreads();
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
KERNEL fuse_8_staged(const __grid_constant__ Fuse p) { fuse_staged<8, false>(p); }
KERNEL fuse_4_staged(const __grid_constant__ Fuse p) { fuse_staged<4, false>(p); }
KERNEL fuse_4_staged_mapped(const __grid_constant__ Fuse p) { fuse_staged<4, true>(p); }
KERNEL fuse_small_rows(const __grid_constant__ Fuse p) { fuse_small<false>(p); }
KERNEL fuse_small_rows_mapped(const __grid_constant__ Fuse p) { fuse_small<true>(p); }
