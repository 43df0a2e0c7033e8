// The fast kernels of FuseOp: rows without gaps between columns, linear or moved. Names: columns a thread, "mapped" with an epilogue or another
// type out, "staged" where an entry's values go through shared memory.
#include "rows.cuh"

#ifndef BOUNDS
#define BOUNDS
#endif
#define KERNEL extern "C" __global__ void BOUNDS

template <int E, bool MAP, bool STAGE> DEVICE void fuse_tiles(const Fuse &p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  wait_for_previous_grid();
  if (at_fault(p)) return;
  u32 overflow = 0;
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    i64 q = p.chunks == 1 ? work : work / p.chunks;
    i32 chunk = (i32)(work - q * p.chunks);
    i64 entry = p.tiles == 1 ? q : q / p.tiles;
    i32 from = (i32)(q - entry * p.tiles) * p.tile;
    i32 n = min(p.tile, p.rows - from);
    plan_tile<Row, false, STAGE>(p, shared, 0, p.streams, entry, from, n, p.valid != nullptr && chunk == 0);
    i32 first = chunk * p.chunk, vectors = min(p.chunk, p.vectors - first);
    i32 lanes = max(1, (i32)blockDim.x / vectors), threads = vectors >= (i32)blockDim.x ? (i32)blockDim.x : lanes * vectors;
    const Span *spans = (const Span *)shared;
    if ((i32)threadIdx.x < threads) {
      i32 lane = (i32)threadIdx.x / vectors, s = 0;
      for (i32 j = (i32)threadIdx.x - lane * vectors; j < vectors; j += threads) {
        i32 v = first + j;
        while (s + 1 < p.streams && v >= p.s[s + 1].vector) s++;
        const Stream &x = p.s[s];
        i32 c = (v - x.vector) * E;
        const char *values = values_of(x, spans[s], entry);
        Lane l = {(STAGE ? shared + x.staged + staged_offset(values) : values) + c * size_of(x.type),
                  p.out + entry * p.out_entry + from * p.out_row + x.out + c * size_of(p.out_type), (i32)x.row, (i32)p.out_row,
                  (const Row *)(shared + p.plan) + s, p.streams, n, lane, lanes};
        if constexpr (MAP) {
          Finish<E> f;
          set_finish<E>(f, p.table, x.extra, c, p.out_type);
          map_lane<E, STAGE>(l, x.type, f, p.counts != nullptr, overflow);
        } else {
          lerp_lane<E, STAGE>(l, x.type);
        }
      }
    }
    if (work + gridDim.x < p.work) __syncthreads();
  }
  if (MAP && p.counts != nullptr) add_counts(p.counts, Casts{overflow, 0});
}

KERNEL fuse_8(const __grid_constant__ Fuse p) { fuse_tiles<8, false, false>(p); }
KERNEL fuse_4(const __grid_constant__ Fuse p) { fuse_tiles<4, false, false>(p); }
KERNEL fuse_1(const __grid_constant__ Fuse p) { fuse_tiles<1, false, false>(p); }
#ifdef SWEEP
KERNEL fuse_8_staged(const __grid_constant__ Fuse p) { fuse_tiles<8, false, true>(p); }
#endif
KERNEL fuse_4_staged(const __grid_constant__ Fuse p) { fuse_tiles<4, false, true>(p); }
KERNEL fuse_1_staged(const __grid_constant__ Fuse p) { fuse_tiles<1, false, true>(p); }
KERNEL fuse_4_mapped(const __grid_constant__ Fuse p) { fuse_tiles<4, true, false>(p); }
KERNEL fuse_1_mapped(const __grid_constant__ Fuse p) { fuse_tiles<1, true, false>(p); }
KERNEL fuse_small_rows(const __grid_constant__ Fuse p) { fuse_small(p); }
