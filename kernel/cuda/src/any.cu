// The kernel of FuseOp that does everything, one column at a time; a block has a tile of one stream.
#include "any.cuh"
#include "apply.cuh"

extern "C" __global__ void fuse_any(const __grid_constant__ Fuse p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  wait_for_previous_grid();
  if (at_fault(p)) return;
  Casts casts = {0, 0};
#pragma unroll 1
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    i64 q = work / p.streams;
    i32 s = (i32)(work - q * p.streams);
    i64 entry = q / p.tiles;
    i32 from = (i32)(q - entry * p.tiles) * p.tile, n = min(p.tile, p.rows - from);
    plan_tile<true>(p, shared, s, 1, entry, from, n, p.valid != nullptr, look_ahead(p, s, 1, entry, from, n));
    const Stream &x = p.s[s];
    const Extra &e = *(const Extra *)(p.table + x.extra);
    const WideRow *plan = (const WideRow *)(shared + p.plan);
    Values v = {values_of(x, span(p, shared, s, 0), entry), x.row, e.column, x.type, x.mode, x.type == p.out_type && !computes(e), computes_wide(x.type, p.out_type)};
    u64 sample = x.samples != nullptr ? (u64)*(const i64 *)(x.samples + entry * e.samples) : (u64)entry;
    float scale = scale_of(e, sample);
    i32 units = units_of(e, x.mode, x.columns), threads = blockDim.x, lanes = max(1, threads / max(units, 1));
    if ((i32)threadIdx.x < lanes * units || units >= threads) {
      i32 lane = units >= threads ? 0 : (i32)threadIdx.x / units;
#pragma unroll 1
      for (i32 r = lane; r < n; r += lanes) {
        WideRow row = plan[r];
        Out out = {p.out + entry * p.out_entry + (from + r) * p.out_row + x.out, p.out_column, p.out_type};
        Cell cell = {nullptr, p.out_type, 0, from + r, sample, scale, row.kind != kZero && drops(e, from + r, sample)};
#pragma unroll 1
        for (i32 u = (i32)threadIdx.x - lane * units; u < units; u += threads)
          if (!make_unit(p.table, e, v, row, out, cell, u, casts) && p.valid != nullptr)
            p.valid[entry * p.valid_entry + (from + r) * p.valid_row + (p.first + s) * p.valid_stream] = 0;
      }
    }
    __syncthreads();
  }
  if (p.counts != nullptr) add_counts(p.counts, casts);
}

// in_range: ns lie inside ±2^62; seconds are finite, and what they are in ns lies there. As given they are as far inside.
DEVICE bool in_range(const char *at, u8 type, u8 clock) {
  if (type == kI64) return *(const i64 *)at > -kMaxTime && *(const i64 *)at < kMaxTime;
  double t = type == kF64 ? *(const double *)at : (double)*(const float *)at;
  return fabs(clock == kAsGiven ? t : __dmul_rn(t, 1e9)) < (double)kMaxTime;
}

// fuse_check leaves the first entry and stream at fault in *status: entry·2^16 + stream.
extern "C" __global__ void fuse_check(const __grid_constant__ Fuse p) {
  extern __shared__ __align__(16) char shared[];
  wait_for_previous_grid();
#pragma unroll 1
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    i64 entry = work / p.streams;
    i32 s = (i32)(work - entry * p.streams);
    const Stream &x = p.s[s];
    bool ok = true;
    i64 first = 0, n = x.n;
    if (x.flags & kLengths) {
      n = *(const i64 *)(x.rows + entry * x.rows_step);
      ok = n >= 0 && n <= x.n;
    }
    if (x.flags & kOffsets) {
      first = *(const i64 *)(x.rows + entry * x.rows_step);
      i64 end = *(const i64 *)(x.rows + (entry + 1) * x.rows_step);
      ok = first >= 0 && end >= first && end <= x.entry; // ragged values have no step between entries: it says how many rows there are
      n = end - first;
    }
    bool sound = ok;
    u8 type = time_type(x);
    const char *times = x.times + ((x.flags & kOffsets) ? first * x.times_row : entry * x.times_entry);
#pragma unroll 1
    for (i64 i = threadIdx.x; sound && ok && i < n; i += blockDim.x) {
      const char *at = times + i * x.times_row;
      ok = in_range(at, type, p.clock) && (i == 0 || load_time(at - x.times_row, type, p.clock) <= load_time(at, type, p.clock));
    }
    const char *targets = p.targets + entry * p.targets_entry;
#pragma unroll 1
    for (i32 i = threadIdx.x; sound && ok && i < p.rows; i += blockDim.x) ok = in_range(targets + i * p.targets_row, p.time_type, p.clock);
    if (sound && x.edge == kErrorEdge) {
      gather(p, shared, s, 1, entry, look_ahead(p, s, 1, entry, 0, 0));
#pragma unroll 1
      for (i32 i = threadIdx.x; ok && i < p.rows; i += blockDim.x)
        ok = find_all(p, shared, s, 0, entry, load_time(targets + i * p.targets_row, p.time_type, p.clock)).fault == 0;
    }
    if (!ok) atomicMin(p.status, entry << 16 | (p.first + s));
    __syncthreads();
  }
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
    Values v = {x.src, x.src_row, e.column, x.type, x.mode, x.type == x.out_type && !computes(e), computes_wide(x.type, x.out_type)};
    i32 units = units_of(e, x.mode, x.columns), threads = blockDim.x, lanes = max(1, threads / max(units, 1));
    if ((i32)threadIdx.x < lanes * units || units >= threads) {
      i32 lane = units >= threads ? 0 : (i32)threadIdx.x / units;
#pragma unroll 1
      for (i32 r = lane; r < n; r += lanes) {
        WideRow row = plan[r];
        i32 number = e.per > 0 ? (from + r) / e.per : 0, of = e.per > 0 ? (from + r) - number * e.per : from + r;
        u64 sample = x.samples != nullptr ? (u64)*(const i64 *)(x.samples + number * e.samples) : 0;
        Out out = {x.out + (from + r) * x.out_row, e.out_column, x.out_type};
        Cell cell = {nullptr, x.out_type, 0, of, sample, scale_of(e, sample), row.kind != kZero && drops(e, of, sample)};
#pragma unroll 1
        for (i32 u = (i32)threadIdx.x - lane * units; u < units; u += threads)
          if (!make_unit(p.table, e, v, row, out, cell, u, casts) && x.valid != nullptr) *(u8 *)(x.valid + (from + r) * e.strides[4]) = 0;
      }
    }
    __syncthreads();
  }
  if (p.counts != nullptr) add_counts(p.counts, casts);
}
