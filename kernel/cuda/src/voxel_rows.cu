// Features of cells, dense and sparse, and the sparse layout of every mode: see voxel.cuh. Each
// block owns one bucket.
//
// The points of a cell are sorted before they are added in float64. The sum is therefore the same
// in every run and on every back end. Most cells have a few points, which one thread sorts in
// place. If a cell has many, the whole bucket is sorted by a stable radix sort, whose time does not
// depend on the distribution of the points.
#include "voxel_order.cuh"

// ---- a bucket ----

// is_wide reports whether four adjacent columns can be moved at once.
DEVICE bool is_wide(const Voxel &p) {
  u64 in = 4 * size_of(p.feature_type) - 1;
  return p.wide && ((u64)p.features & in) == 0 && ((u64)(p.sparse ? p.rows : p.out) & 15) == 0;
}

// kind_of returns the amount of work for a row of k points. Rows of one kind are adjacent; empty
// rows are last.
DEVICE u32 kind_of(u32 k) { return k <= 2 ? k - 1 : k <= 4 ? 2 : 3; }

// count_cells converts the point counts of a bucket's cells to the start of each cell's points (the
// end if they are already sorted), and orders the rows. Each thread handles kCells adjacent cells.
// It returns whether a cell has more points than one thread sorts.
template <int OP>
DEVICE bool count_cells(const Voxel &p, const Bucket &b, u32 *ends, u16 *named, Rows &r, u32 &n,
    u32 *partial, u64 *kinds) {
  u32 mine = threadIdx.x * kCells, sum = 0, k[kCells];
  // b.cells of the last bucket can be any number; cells beyond it are not counted
  bool some = mine < b.cells, many = false;
  u64 kind = 0; // number of rows of each kind, 16 bits each
  if (some) {
    uint4 x = *(uint4 *)(ends + mine), y = *(uint4 *)(ends + mine + 4);
    k[0] = x.x, k[1] = x.y, k[2] = x.z, k[3] = x.w, k[4] = y.x, k[5] = y.y, k[6] = y.z, k[7] = y.w;
#pragma unroll
    for (u32 i = 0; i < kCells; i++) {
      sum += k[i];
      many |= k[i] > kFew;
      if (k[i]) kind += p.sparse ? 1 : 1ull << 16 * kind_of(k[i]);
    }
  }
  many = __syncthreads_or(many && OP != kExtreme && p.columns != 0);
  u64 all;
  u32 at = block_scan2(sum, kind, n, all, partial, kinds);
  u32 k0 = (u32)all & 0xffff, k1 = k0 + ((u32)all >> 16), k2 = k1 + ((u32)(all >> 32) & 0xffff),
      k3 = k2 + (u32)(all >> 48);
  r.single = p.sparse ? 0 : k0, r.some = k3, r.count = p.sparse ? k3 : b.cells;
  if (some) {
    // number of rows that are not empty
    u32 below =
        ((u32)kind & 0xffff) + ((u32)kind >> 16) + ((u32)(kind >> 32) & 0xffff) + (u32)(kind >> 48);
    u32 empty = k3 + mine - below;
    kind += (u64)k0 << 16 | (u64)k1 << 32 | (u64)k2 << 48;
#pragma unroll
    for (u32 i = 0; i < kCells; i++) {
      u32 c = k[i];
      k[i] = many ? at + c : at;
      at += c;
      if (c) {
        u32 s = p.sparse ? 0 : 16 * kind_of(c);
        named[(u32)(kind >> s) & 0xffff] = (u16)(mine + i);
        kind += 1ull << s;
      } else if (!p.sparse && mine + i < b.cells) {
        named[empty++] = (u16)(mine + i);
      }
    }
    *(uint4 *)(ends + mine) = make_uint4(k[0], k[1], k[2], k[3]);
    *(uint4 *)(ends + mine + 4) = make_uint4(k[4], k[5], k[6], k[7]);
  }
  return many;
}

template <int OP>
DEVICE void reduce(const Voxel &p) {
  extern __shared__ __align__(16) char shared[];
  __shared__ u32 partial[40], heavy[kHeavy];
  __shared__ u64 kinds[33];
  __shared__ double values[kValues]; // also used for the counters of the radix sort
  __shared__ i64 told;
  u32 t = threadIdx.x, threads = blockDim.x, cells = p.list ? 0 : max(1u << p.shift, kCells);
  u32 *ends = (u32 *)shared;
  u16 *named = (u16 *)(ends + cells);
  char *room = (char *)(named + cells);
  for (u32 i = t; 4 * i < cells; i += threads) ((uint4 *)ends)[i] = make_uint4(0, 0, 0, 0);
  if (t < kHeavy) heavy[t] = 0;
  wait_for_previous_grid();
  let_next_grid_start();
  if (failed(p)) return;
  if (p.sparse && t == 0) told = atomicAdd(&head(p)->ticket, 1u);
  __syncthreads();
  u32 number = p.sparse ? (u32)told : blockIdx.x;
  Bucket b = bucket_of(p, number);
  Rows r = {};

  // Count the points and find the start of each cell's points.
  u32 n = 0;
  bool many = p.list;
  if (p.list) {
    u32 sum = 0;
    for (u32 i = t; i < b.tiles; i += threads) {
      const u16 *row = b.table + (u64)i * p.pitch;
      sum += row[1] - row[0];
    }
    block_scan(sum, partial, n);
  } else {
    each_word(p, b, p.log, [&](u32 word, u32) { atomicAdd(&ends[word >> p.tile], 1u); });
    __syncthreads();
    many = count_cells<OP>(p, b, ends, named, r, n, partial, kinds);
  }
  if (n == 0 && (p.sparse || p.list)) {
    if (p.sparse) rows_before(p, number, 0, &told);
    if (number == 0) add_places(p);
    return;
  }
  __syncthreads();

  // Sort the points by cell, and those of a cell by number.
  if ((u64)n * (many ? kListed : 4) > p.room) {
    if (t == 0) told = (i64)atomicAdd(&head(p)->cursor, (u64)n);
    __syncthreads();
    room = p.scratch + p.arena + told * kListed;
  }
  u32 *order = (u32 *)room;
  if (many) {
    u64 *first = (u64 *)room;
    u32 *second = (u32 *)(first + 2 * (u64)n);
    List l = sorted_list(p, b, {first, second}, {first + n, second + n}, n,
        OP != kExtreme && p.columns != 0, (u32 *)values, partial);
    order = l.points, r.cells = l.cells;
    if (p.list) {
      ends = order == second ? second + n : second;
      u32 carry = 0, total;
      for (u32 from = 0; from < n; from += threads) {
        u32 i = from + t, last = i < n && (i + 1 == n || l.cells[i] != l.cells[i + 1]);
        u32 at = carry + block_scan(last, partial, total);
        if (last) ends[at] = i + 1;
        carry += total;
      }
      r.count = r.some = carry;
    }
  } else {
    each_word(p, b, p.log, [&](u32 word, u32 tile) {
      order[atomicAdd(&ends[word >> p.tile], 1u)] = point_of(p, b, word, tile);
    });
    __syncthreads();
    if (OP != kExtreme && p.columns != 0)
      sort_few(order, ends, named + r.single, r.some - r.single);
  }
  if (p.sparse) r.base = rows_before(p, number, r.count, &told);
  __syncthreads();
  r.order = order, r.ends = ends, r.named = named, r.heavy = heavy;

  if (p.columns) {
    if (is_wide(p)) {
      Wide w = wide_of(p, b, r);
      if (r.single) write_single<OP>(p, r, w);
      write_some<OP>(p, r, w, r.single, r.some);
      if (r.count > r.some) write_empty(p, r, w);
    } else {
      write_any<OP>(p, b, r);
    }
    if (OP != kPick) {
      __syncthreads();
      if (__syncthreads_or(t < kHeavy && heavy[t])) write_heavy<OP>(p, b, r, values);
    }
  }
  if (p.sparse) write_coords(p, b, r);
  if (number == 0) add_places(p);
}

// The number of blocks per multiprocessor is limited by registers without much spilling. More
// blocks hide more latency.
extern "C" __global__ void __launch_bounds__(256, 4) voxel_add(const __grid_constant__ Voxel p) {
  reduce<kAdd>(p);
}
extern "C" __global__ void __launch_bounds__(256, 5)
    voxel_extreme(const __grid_constant__ Voxel p) {
  reduce<kExtreme>(p);
}
extern "C" __global__ void __launch_bounds__(256, 5) voxel_pick(const __grid_constant__ Voxel p) {
  reduce<kPick>(p);
}
