// Sorts the points of tiles by bucket: see voxel.cuh.
#include "voxel.cuh"

// ---- the cells of a tile's points, computed quickly ----

// A separate function: inlined, its registers would be a cost for all points.
static __device__ __noinline__ u32 exact_cell(float d, float size) {
  float f = floorf(__fdiv_rn(d, size));
  return f >= 0.0f && f < 4194304.0f ? (u32)f : kNone;
}

// quick_floor computes a point's cell along an axis by a multiplication. The product differs from
// the quotient by less than 1.5·2^-23 of its size. Both have the same floor unless the product is
// that close to an integer; then quick_floor divides, as cell_of does. It returns false if the
// value is not finite. Products beyond 2^22 give a number that no grid has.
DEVICE bool quick_floor(const Voxel &p, int a, float x, u32 &i) {
  float d = __fsub_rn(x, p.lo[a]), q = __fmul_rn(d, p.inverse[a]);
#ifdef ROBOCACHE_SIM
  float f = floorf(q);
  i = f >= 0.0f && f < 4194304.0f ? (u32)f : kNone;
#else
  // 1.5·2^23: the last bit has the value 1
  float m = __fadd_rd(q, 12582912.0f), f = __fsub_rn(m, 12582912.0f);
  i = bits(m) - 0x4b400000u;
#endif
  if (fabsf(__fsub_rn(__fsub_rn(q, f), 0.5f)) < p.sure) return true;
  i = exact_cell(d, p.size[a]);
  return is_finite(x);
}

DEVICE bool quick_cell(const Voxel &p, float x, float y, float z, u32 &cell, bool &inside) {
  u32 ix, iy, iz;
  bool sure = quick_floor(p, 0, x, ix) & quick_floor(p, 1, y, iy) & quick_floor(p, 2, z, iz);
  inside = ix < p.grid[0] && iy < p.grid[1] && iz < p.grid[2];
  cell = (ix * p.grid[1] + iy) * p.grid[2] + iz;
  return sure && (inside || p.outside == kDrop);
}

// slow computes the cell of any point (huge: its bucket), or kNone.
DEVICE u32 slow(const Voxel &p, const char *rows, u32 i, u32 &beyond, u32 &strange, u64 number) {
  const char *row = rows + i * p.point_row * size_of(p.point_type);
  Cell c = cell_of(p, point_at(p, row, 0), point_at(p, row, 1), point_at(p, row, 2));
  beyond += c.place == kBeyond;
  strange += c.place == kNotFinite;
  if (c.place == kBeyond && p.outside == kFail) atomicMin(&head(p)->first_outside, number + i);
  if (!kept(p, c.place)) return kNone;
  return p.huge ? (u32)(flat_of(p, c) >> p.shift) : (c.x * p.grid[1] + c.y) * p.grid[2] + c.z;
}

// Sorts a tile of blockDim.x·R points. Within a bucket, the points are in random order.
template <int R>
DEVICE void tile(const Voxel &p) {
  extern __shared__ __align__(16) char shared[];
  u32 threads = blockDim.x, warp = threadIdx.x >> 5, t = threadIdx.x;
  u32 *partial = (u32 *)shared, *sorted = partial + 64, *counters = sorted + threads * R;
  for (u32 i = t; i < (p.buckets + 3) >> 2; i += threads)
    ((uint4 *)counters)[i] = make_uint4(0, 0, 0, 0);
  wait_for_previous_grid();
  let_next_grid_start();

  if (p.sparse) { // initial values for the next kernel
    u64 states = p.batch * p.buckets;
    for (u64 i = (u64)blockIdx.x * threads + t; i < states; i += (u64)gridDim.x * threads)
      ((u64 *)(p.scratch + p.state))[i] = 0;
  }
  if (blockIdx.x == 0 && t == 0) head(p)->cursor = 0, head(p)->ticket = 0;
  if (blockIdx.x >= p.tiles) return; // there are no points

  i64 entry = entry_of(p, blockIdx.x);
  Span s = span_of(p, entry);
  i64 from = (blockIdx.x - first_tile(p, entry, s)) << p.tile, left = s.count - from;
  u32 n = left <= 0 || from < 0 ? 0 : (u32)(left < (i64)(threads * R) ? left : threads * R);
  const char *rows =
      p.points + (entry * p.point_entry + (s.first + from) * p.point_row) * size_of(p.point_type);

  u32 cell[R], rank[R], beyond = 0, strange = 0, unsure = 0;
  if (p.quick) {
    const char *x = rows + (i64)p.row_bytes * t, *y = x + p.axis_bytes, *z = y + p.axis_bytes;
    i64 step = (i64)p.row_bytes * threads;
#pragma unroll
    for (int r = 0; r < R; r += 4) {
      const int C = R < 4 ? R : 4;
      float a[C], b[C], c[C];
#pragma unroll
      for (int k = 0; k < C; k++, x += step, y += step, z += step) {
        a[k] = b[k] = c[k] = real(0x7fc00000u);
        if ((r + k) * threads + t < n)
          a[k] = real(load_once<4>(x).w[0]), b[k] = real(load_once<4>(y).w[0]),
          c[k] = real(load_once<4>(z).w[0]);
      }
#pragma unroll
      for (int k = 0; k < C; k++) {
        bool inside, sure = quick_cell(p, a[k], b[k], c[k], cell[r + k], inside);
        beyond += sure && !inside;
        if (!sure) unsure |= 1u << (r + k);
        if (!inside || !sure) cell[r + k] = kNone;
      }
    }
  } else {
    unsure = ~0u;
#pragma unroll
    for (int r = 0; r < R; r++) cell[r] = kNone;
  }
  if (unsure) {
    // number of the tile's first point among all points
    u64 number = entry * p.rows_in * (p.entries != kOffsets) + s.first + from;
#pragma unroll 1
    for (u32 r = 0; r < R; r++)
      if (unsure >> r & 1)
        sorted[r * threads + t] =
            r * threads + t < n ? slow(p, rows, r * threads + t, beyond, strange, number) : kNone;
#pragma unroll
    for (int r = 0; r < R; r++)
      if (unsure >> r & 1) cell[r] = sorted[r * threads + t];
  }
  __syncthreads(); // the counters are 0 and sorted can be written

  u32 shift = p.huge ? 0 : p.shift;
#pragma unroll
  for (int r = 0; r < R; r++)
    rank[r] = cell[r] != kNone ? atomicAdd(&counters[cell[r] >> shift], 1u) : 0;
  __syncthreads();

  // Convert the counters to the start of each bucket, with two adjacent buckets per thread.
  u16 *row = (u16 *)(p.scratch + p.table) + (u64)blockIdx.x * p.pitch;
  u32 carry = 0, total, half = (p.buckets + 1) >> 1;
  for (u32 first = 0; first < half; first += threads) {
    u32 j = first + t;
    uint2 c = make_uint2(0, 0);
    if (j < half) c = ((uint2 *)counters)[j];
    u32 at = carry + block_scan(c.x + c.y, partial, total);
    if (j < half) {
      ((uint2 *)counters)[j] = make_uint2(at, at + c.x);
      *(u32 *)(row + 2 * j) = at | (at + c.x) << 16;
    }
    carry += total;
  }
  // odd: the last high half contains it
  if (t == 0 && !(p.buckets & 1)) row[p.buckets] = (u16)carry;
  __syncthreads();

#pragma unroll
  for (int r = 0; r < R; r++)
    if (cell[r] != kNone)
      sorted[counters[cell[r] >> shift] + rank[r]] =
          (cell[r] & ((1u << shift) - 1)) << p.tile | (r * threads + t);
  if (t < 3 && carry + t < threads * R) sorted[carry + t] = 0; // 16 bytes are written at once
  u32 b = 0, q = 0; // numbers of points outside and not finite; the next kernel adds them
  if (p.stats) {
    b = __reduce_add_sync(0xffffffffu, beyond), q = __reduce_add_sync(0xffffffffu, strange);
    if (lane() == 0) partial[warp] = b, partial[32 + warp] = q;
  }
  __syncthreads();
  if (p.stats && t == 0) {
    u32 *places = (u32 *)(p.scratch + p.places) + (u64)blockIdx.x * 3;
    b = q = 0;
    for (u32 w = 0; w < threads >> 5; w++) b += partial[w], q += partial[32 + w];
    places[0] = n - b - q, places[1] = b, places[2] = q;
  }
  u32 *words = (u32 *)(p.scratch + p.words) + ((u64)blockIdx.x << p.tile);
  for (u32 i = t; 4 * i < carry; i += threads) ((uint4 *)words)[i] = ((uint4 *)sorted)[i];
}

extern "C" __global__ void __launch_bounds__(1024) voxel_tile_4(const __grid_constant__ Voxel p) {
  tile<4>(p);
}
extern "C" __global__ void __launch_bounds__(1024) voxel_tile_16(const __grid_constant__ Voxel p) {
  tile<16>(p);
}
