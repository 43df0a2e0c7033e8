// Dense occupancy and counts, and kernels for grids of any size: see voxel.cuh.
#include "voxel.cuh"

// value_of returns a cell's count as the result stores it.
DEVICE u32 value_of(const Voxel &p, u32 count) {
  if (p.mode == kCount) return count;
  return count == 0 ? 0 : p.out_type == kF32 ? 0x3f800000u : 1;
}

// Each block counts one bucket in shared memory and writes its cells.
extern "C" __global__ void voxel_count(const __grid_constant__ Voxel p) {
  extern __shared__ __align__(16) char shared[];
  u32 *counts = (u32 *)shared, t = threadIdx.x, threads = blockDim.x;
  for (u32 i = t; i < ((1u << p.shift) + 3) / 4; i += threads)
    ((uint4 *)counts)[i] = make_uint4(0, 0, 0, 0);
  wait_for_previous_grid();
  let_next_grid_start();
  if (failed(p)) return;
  __syncthreads();
  Bucket b = bucket_of(p, blockIdx.x);
  each_word(p, b, p.log, [&](u32 word, u32) { atomicAdd(&counts[word >> p.tile], 1u); });
  __syncthreads();

  u32 first = b.number << p.shift, size = size_of(p.out_type);
  if (p.bit) { // the host makes sure that each byte is in one bucket
    i64 byte = (b.entry * p.cells + first) >> 3;
    for (u32 i = t; 8 * i < b.cells; i += threads) {
      u32 v = 0;
      for (u32 j = 0; j < 8 && 8 * i + j < b.cells; j++) v |= (u32)(counts[8 * i + j] != 0) << j;
      p.out[(byte + i) * p.out_z] = (char)v;
    }
  } else if (p.flat) {
    char *out = p.out + (b.entry * p.out_entry + first) * size;
    u32 whole = ((u64)out & 15) ? 0 : b.cells * size / 16;
    if (size == 4) {
      for (u32 i = t; i < whole; i += threads) {
        uint4 c = ((uint4 *)counts)[i];
        store_once<16>(
            out + 16 * i, {value_of(p, c.x), value_of(p, c.y), value_of(p, c.z), value_of(p, c.w)});
      }
    } else {
      for (u32 i = t; i < whole; i += threads) {
        Words<16> w;
#pragma unroll
        for (int j = 0; j < 4; j++) {
          uint4 c = ((uint4 *)counts)[4 * i + j];
          w.w[j] = (u32)(c.x != 0) | (u32)(c.y != 0) << 8 | (u32)(c.z != 0) << 16 |
                   (u32)(c.w != 0) << 24;
        }
        store_once<16>(out + 16 * i, w);
      }
    }
    for (u32 i = whole * 16 / size + t; i < b.cells; i += threads)
      store_bits(out + i * size, size, value_of(p, counts[i]));
  } else {
    for (u32 i = t; i < b.cells; i += threads)
      store_bits(p.out + out_offset(p, b.entry, first + i) * size, size, value_of(p, counts[i]));
  }
  if (blockIdx.x == 0) add_places(p);
}

// ---- grids of any size: cleared, then counted in global memory ----

DEVICE i64 spread(const Voxel &p, i64 i) { // offset of element i of a result with any strides
  u32 c = 0;
  if (p.columns) c = (u32)(i % p.columns), i /= p.columns;
  i64 z = i % p.grid[2];
  i /= p.grid[2];
  i64 y = i % p.grid[1];
  i /= p.grid[1];
  return i / p.grid[0] * p.out_entry + i % p.grid[0] * p.out_x + y * p.out_y + z * p.out_z +
         c * p.out_column;
}

// Writes every element of the result, and the counters in scratch.
extern "C" __global__ void voxel_clear(const __grid_constant__ Voxel p) {
  wait_for_previous_grid();
  let_next_grid_start();
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
  if (i < 3 && p.stats) ((i64 *)p.stats)[i * p.stats_step] = 0;
  if (i == 0) {
    head(p)->first_outside = ~0ull;
    if (p.found) *(i64 *)p.found = 0;
  }
  if (!p.out) return;
  if (p.bit) { // bits are collected in scratch, because words of the result can extend beyond it
    i64 words = (p.batch * p.cells + 127) >> 7;
    for (i64 j = i; j < words; j += step)
      ((uint4 *)(p.scratch + p.words))[j] = make_uint4(0, 0, 0, 0);
    return;
  }
  i64 n = p.batch * p.cells * (p.columns ? p.columns : 1);
  u32 size = size_of(p.out_type), v = bits(p.fill);
  if (p.flat && (p.batch == 1 || p.out_entry == p.cells * (p.columns ? p.columns : 1))) {
    i64 whole = ((u64)p.out & 15) ? 0 : n * size / 16;
    for (i64 j = i; j < whole; j += step)
      *(uint4 *)(p.out + 16 * j) = make_uint4(v, v, v, v); // fill is 0 unless the result is float32
    for (i64 j = whole * 16 / size + i; j < n; j += step) store_bits(p.out + j * size, size, v);
  } else {
    for (i64 j = i; j < n; j += step) store_bits(p.out + spread(p, j) * size, size, v);
  }
}

// Each thread handles four points, which it reads before the clearing has ended.
extern "C" __global__ void voxel_hit(const __grid_constant__ Voxel p) {
  const int R = 4;
  i64 entry = entry_of(p, blockIdx.x);
  Span s = span_of(p, entry);
  i64 from = (blockIdx.x - first_tile(p, entry, s)) << p.tile, left = s.count - from;
  u32 n = left <= 0 || from < 0 ? 0 : (u32)(left < (1ll << p.tile) ? left : 1ll << p.tile),
      size = size_of(p.point_type);
  const char *rows = p.points + (entry * p.point_entry + (s.first + from) * p.point_row) * size;
  Cell c[R];
  u32 beyond = 0, strange = 0, there = 0;
#pragma unroll
  for (int r = 0; r < R; r++) {
    u32 i = r * blockDim.x + threadIdx.x;
    c[r].place = kNotFinite;
    if (i >= n) continue;
    const char *row = rows + i * p.point_row * size;
    c[r] = cell_of(p, point_at(p, row, 0), point_at(p, row, 1), point_at(p, row, 2));
    there++;
    beyond += c[r].place == kBeyond;
    strange += c[r].place == kNotFinite;
  }
  wait_for_previous_grid();
#pragma unroll
  for (int r = 0; r < R; r++) {
    if (!kept(p, c[r].place)) continue;
    i64 at;
    if (p.bit) {
      i64 flat = entry * p.cells + (i64)flat_of(p, c[r]);
      atomicOr((u32 *)(p.scratch + p.words) + (flat >> 5), 1u << (flat & 31));
      continue;
    }
    at = entry * p.out_entry + c[r].x * p.out_x + c[r].y * p.out_y + c[r].z * p.out_z;
    if (p.mode == kCount) atomicAdd((u32 *)p.out + at, 1u);
    else if (p.out_type == kU8 || p.out_type == kBool) p.out[at] = 1;
    else ((u32 *)p.out)[at] = value_of(p, 1);
  }
  if (p.outside == kFail) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      u32 i = r * blockDim.x + threadIdx.x;
      if (i < n && c[r].place == kBeyond)
        atomicMin(&head(p)->first_outside,
            (u64)(entry * p.rows_in * (p.entries != kOffsets) + s.first + from + i));
    }
  }
  if (!p.stats) return;
  u32 b = __reduce_add_sync(0xffffffffu, beyond), q = __reduce_add_sync(0xffffffffu, strange),
      k = __reduce_add_sync(0xffffffffu, there);
  if (lane() == 0) {
    u64 *stats = (u64 *)p.stats;
    if (k - b - q) atomicAdd(stats, (u64)(k - b - q));
    if (b) atomicAdd(stats + p.stats_step, (u64)b);
    if (q) atomicAdd(stats + 2 * p.stats_step, (u64)q);
  }
}

// Writes the bits that voxel_hit collected.
extern "C" __global__ void voxel_bits(const __grid_constant__ Voxel p) {
  wait_for_previous_grid();
  let_next_grid_start();
  i64 n = (p.batch * p.cells + 7) >> 3, step = (i64)gridDim.x * blockDim.x;
  const char *bits = p.scratch + p.words;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    p.out[i * p.out_z] = bits[i];
}
