// The general kernel of FuseOp, which supports everything. A thread computes one column at a time;
// a block has a tile of one stream.
#include "any.cuh"
#include "apply.cuh"

extern "C" __global__ void fuse_any(const __grid_constant__ Fuse p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  wait_for_previous_grid();
  Casts casts = {0, 0};
#pragma unroll 1
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    i64 q = work / p.streams;
    i32 s = (i32)(work - q * p.streams);
    i64 entry = q / p.tiles;
    i32 from = (i32)(q - entry * p.tiles) * p.tile, n = min(p.tile, p.rows - from);
    plan_tile<true>(
        p, shared, s, 1, entry, from, n, p.valid != nullptr, look_ahead(p, s, 1, entry, from, n));
    const Stream &x = p.s[s];
    const Extra &e = *(const Extra *)(p.table + x.extra);
    const WideRow *plan = (const WideRow *)(shared + p.plan);
    Values v = {values_of(x, span(p, shared, s, 0), entry), x.row, e.column, x.type, x.mode,
        x.type == p.out_type && !computes(e), computes_wide(x.type, p.out_type)};
    u64 sample =
        x.samples != nullptr ? (u64) * (const i64 *)(x.samples + entry * e.samples) : (u64)entry;
    float scale = scale_of(e, sample);
    make_rows(p.table, e, v, plan, n, x.columns, casts, [&](i32 r) {
      u8 *valid = p.valid != nullptr ? p.valid + entry * p.valid_entry + (from + r) * p.valid_row +
                                           (p.first + s) * p.valid_stream
                                     : nullptr;
      return Made{
          {p.out + entry * p.out_entry + (from + r) * p.out_row + x.out, p.out_column, p.out_type},
          valid, from + r, sample, scale};
    });
    __syncthreads();
  }
  if (p.counts != nullptr) add_counts(p.counts, casts);
}

extern "C" __global__ void apply_any(const __grid_constant__ Apply p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  wait_for_previous_grid();
  Casts casts = {0, 0};
  WideRow *plan = (WideRow *)shared;
#pragma unroll 1
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    const Part &x = p.s[part_of(p, work)];
    const Extra &e = *(const Extra *)(p.table + x.extra);
    i32 from = (i32)(work - x.work) * x.tile, n = min(x.tile, x.rows - from);
#pragma unroll 1
    for (i32 i = threadIdx.x; i < n; i += blockDim.x) set_row(plan[i], load_plan(p, x, from + i));
    __syncthreads();
    Values v = {x.src, x.src_row, e.column, x.type, x.mode, x.type == x.out_type && !computes(e),
        computes_wide(x.type, x.out_type)};
    make_rows(p.table, e, v, plan, n, x.columns, casts, [&](i32 r) {
      i32 number = e.per > 0 ? (from + r) / e.per : 0,
          of = e.per > 0 ? (from + r) - number * e.per : from + r;
      u64 sample = x.samples != nullptr ? (u64) * (const i64 *)(x.samples + number * e.samples) : 0;
      u8 *valid = x.valid != nullptr ? (u8 *)(x.valid + (from + r) * e.strides[4]) : nullptr;
      return Made{{x.out + (from + r) * x.out_row, e.out_column, x.out_type}, valid, of, sample,
          scale_of(e, sample)};
    });
    __syncthreads();
  }
  if (p.counts != nullptr) add_counts(p.counts, casts);
}
