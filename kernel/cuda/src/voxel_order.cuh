// The order of a bucket's points, by cell and number, and the position of its rows among those of
// all buckets. Only voxel_rows.cu includes this file.
#pragma once
#include "voxel_values.cuh"

// ---- order ----

// List is the points of a bucket: their cells, and their numbers within the entry.
struct List {
  u64 *cells;
  u32 *points;
};

// sort_pass is one pass of a stable radix sort by four bits. Each warp handles a run of adjacent
// points; lane d counts digit d.
DEVICE void sort_pass(
    const List &from, const List &to, u32 n, u32 shift, bool by_point, u32 *counts, u32 *partial) {
  u32 warps = blockDim.x >> 5, warp = threadIdx.x >> 5, l = lane();
  u32 run = (n + 32 * warps - 1) / (32 * warps) * 32, lo = min(n, warp * run),
      hi = min(n, lo + run), mine = 0;
  for (int write = 0; write < 2; write++) {
    for (u32 i = lo; i < hi; i += 32) {
      bool there = i + l < hi;
      u64 key = there ? by_point ? from.points[i + l] : from.cells[i + l] : 0;
      u32 digit = (u32)(key >> shift) & 15, all = __ballot_sync(0xffffffffu, there), same = all,
          counted = all;
#pragma unroll
      for (int k = 0; k < 4; k++) {
        u32 m = __ballot_sync(0xffffffffu, digit >> k & 1);
        same &= digit >> k & 1 ? m : ~m;
        counted &= l >> k & 1 ? m : ~m;
      }
      u32 before = __shfl_sync(0xffffffffu, mine, digit);
      if (write && there) {
        u32 at = before + __popc(same & lanes_below());
        to.cells[at] = from.cells[i + l], to.points[at] = from.points[i + l];
      }
      mine += __popc(counted);
    }
    if (write) break;
    __syncthreads();
    if (l < 16) counts[l * warps + warp] = mine;
    __syncthreads();
    u32 total, carry = 0;
    for (u32 first = 0; first < 16 * warps; first += blockDim.x) {
      u32 i = first + threadIdx.x, v = i < 16 * warps ? counts[i] : 0,
          at = carry + block_scan(v, partial, total);
      if (i < 16 * warps) counts[i] = at;
      carry += total;
    }
    __syncthreads();
    mine = l < 16 ? counts[l * warps + warp] : 0;
  }
  __syncthreads();
}

// sorted_list returns the bucket's points by cell. If ordered, the points of a cell are in their
// order. a and c must have space for all points.
DEVICE List sorted_list(const Voxel &p, const Bucket &b, List a, List c, u32 n, bool ordered,
    u32 *counts, u32 *partial) {
  u32 carry = 0, total;
  for (u32 first = 0; first < b.tiles; first += blockDim.x) {
    u32 t = first + threadIdx.x, i = 0, end = 0;
    if (t < b.tiles) {
      const u16 *row = b.table + (u64)t * p.pitch;
      i = row[0], end = row[1];
    }
    u32 at = carry + block_scan(end - i, partial, total);
    const u32 *words = b.words + ((u64)t << p.tile);
    for (; i < end; i += 4) {
      u32 w[4];
#pragma unroll
      for (u32 k = 0; k < 4; k++) w[k] = words[min(i + k, end - 1)];
#pragma unroll
      for (u32 k = 0; k < 4; k++) {
        if (i + k >= end) break;
        u32 point = point_of(p, b, w[k], t);
        a.points[at] = point;
        a.cells[at++] = p.huge ? flat_cell(p, b, point) & ((1ull << p.shift) - 1) : w[k] >> p.tile;
      }
    }
    carry += total;
  }
  __syncthreads();
  for (u32 s = 0; ordered && n > 1 && s < 32 && (u64)(b.span.count - 1) >> s; s += 4) {
    sort_pass(a, c, n, s, true, counts, partial);
    List x = a;
    a = c, c = x;
  }
  for (u32 s = 0; n > 1 && s < p.shift; s += 4) {
    sort_pass(a, c, n, s, false, counts, partial);
    List x = a;
    a = c, c = x;
  }
  return a;
}

// sort_few sorts the points of some cells by number.
DEVICE void sort_few(u32 *order, const u32 *ends, const u16 *named, u32 rows) {
  for (u32 r = threadIdx.x; r < rows; r += blockDim.x) {
    u32 c = named[r], from = c ? ends[c - 1] : 0, to = ends[c];
    for (u32 i = from + 1; i < to; i++) {
      u32 x = order[i], j = i;
      for (; j > from && order[j - 1] > x; j--) order[j] = order[j - 1];
      order[j] = x;
    }
  }
}

// ---- rows before ----

// rows_before returns the number of rows of all buckets before this one, which may still be
// running. Each bucket publishes its own number at once, and the sum up to itself as soon as the
// sum is known. Buckets start in order (by ticket), so none waits for one that cannot run.
DEVICE i64 rows_before(const Voxel &p, u32 bucket, u32 rows, i64 *shared) {
  const u64 kOwn = 1ull << 62, kAll = 2ull << 62, kValue = kOwn - 1;
  u64 *state = (u64 *)(p.scratch + p.state);
  if (threadIdx.x < 32) {
    if (lane() == 0) atomicExch(&state[bucket], (bucket ? kOwn : kAll) | rows);
    u64 sum = 0;
    i64 last = (i64)bucket - 1;
    while (last >= 0) {
      i64 i = last - lane();
      u64 v = i >= 0 ? atomicAdd(&state[i], 0ull) : kAll;
      u32 known = __ballot_sync(0xffffffffu, v >> 62 != 0),
          full = __ballot_sync(0xffffffffu, v >> 62 == 2);
      // up to the nearest bucket with a known sum
      u32 needed = full ? (full & (0u - full)) * 2 - 1 : 0xffffffffu;
      if ((known & needed) != needed) continue;
      u64 part = needed >> lane() & 1 ? v & kValue : 0;
      for (u32 d = 16; d; d >>= 1) part += __shfl_xor_sync(0xffffffffu, part, d);
      sum += part;
      if (full) break;
      last -= 32;
    }
    if (lane() == 0) {
      if (bucket) atomicExch(&state[bucket], kAll | (sum + rows));
      if (bucket == p.batch * p.buckets - 1) *(i64 *)p.found = (i64)(sum + rows);
      *shared = (i64)sum;
    }
  }
  __syncthreads();
  return *shared;
}
