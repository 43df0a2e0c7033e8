// Features of cells, dense and sparse, and the sparse layout of every mode: see voxel.cuh. A block owns one bucket.
//
// The points of a cell are brought into their order before they are added, in float64, so that the sum is the same in
// every run and on every back end. Most cells hold a few points, which one thread sorts in place; where a cell holds many, the
// whole bucket is sorted by a stable radix sort, whose time does not depend on how the points lie.
#include "voxel.cuh"

#define MEMBER __device__ __forceinline__

enum Reduce { kAdd, kExtreme, kPick };

constexpr u32 kFew = 96;    // points of a cell that one thread sorts: they are nearly in order
constexpr u32 kListed = 24; // bytes a point in two lists
constexpr u32 kValues = 512; // values of such rows at once
constexpr u32 kMany = 1024; // points of a row that a whole block reads
constexpr u32 kCells = 8;   // neighbouring cells a thread

// What a block knows of its rows. Without a list they are named by cell; dense ones by how many points they have, so
// that neighbouring threads do as much work.
struct Rows {
  const u32 *order; // points, by cell
  const u32 *ends;  // of the cells; list: of the rows
  const u16 *named; // the cells of the rows; not of a list
  const u64 *cells; // list: of the points, by cell
  u32 count;        // rows
  u32 single;       // the first of them have one point
  u32 some;         // and those up to here have any
  i64 base;         // sparse: rows of the buckets before
  u32 *heavy;       // rows of many points, after their number
};

DEVICE void row_range(const Voxel &p, const Rows &r, u32 row, u64 &cell, u32 &from, u32 &to) {
  u32 at = p.list ? row : (u32)r.named[row];
  from = at ? r.ends[at - 1] : 0;
  to = r.ends[at];
  cell = p.list ? r.cells[from] : at;
}

// ---- values ----

DEVICE u32 order_bits(float x) { return bits(x) >> 31 ? ~bits(x) : bits(x) | 0x80000000u; }
DEVICE float unorder_bits(u32 k) { return real(k >> 31 ? k & 0x7fffffffu : ~k); }

DEVICE void load_wide(float *v, const char *p, u8 t) { // four neighbours
  if (t == kF32) {
    Words<16> w = load_once<16>(p);
    v[0] = real(w.w[0]), v[1] = real(w.w[1]), v[2] = real(w.w[2]), v[3] = real(w.w[3]);
  } else {
    Words<8> w = load_once<8>(p);
    bool half = t == kF16;
    v[0] = half ? f16_low(w.w[0]) : bf16_low(w.w[0]), v[1] = half ? f16_high(w.w[0]) : bf16_high(w.w[0]);
    v[2] = half ? f16_low(w.w[1]) : bf16_low(w.w[1]), v[3] = half ? f16_high(w.w[1]) : bf16_high(w.w[1]);
  }
}

// quotient is s/n, rounded as a division is, by n's inverse: two corrections by the exact remainder. It holds where nothing comes near the
// ends of the range; elsewhere it divides.
DEVICE double quotient(double s, double n, double inverse) {
  double q = __dmul_rn(s, inverse);
  q = __fma_rn(__fma_rn(-q, n, s), inverse, q);
  q = __fma_rn(__fma_rn(-q, n, s), inverse, q);
  u32 exponent = (u32)(bits(q) >> 52) & 0x7ff;
  return exponent - 128 < 1792 || s == 0.0 ? q : __ddiv_rn(s, n);
}

// Reduced is one column of a row.
template <int OP> struct Reduced {
  double s;
  u32 k;
  MEMBER void begin(const Voxel &p) {
    s = 0.0;
    k = p.mode == kMaximum ? 0x007fffffu : 0xff800000u; // -Inf, +Inf
  }
  MEMBER void add(const Voxel &p, float x) {
    if (OP == kAdd) s = __dadd_rn(s, (double)x);
    if (OP == kExtreme && x == x) k = p.mode == kMaximum ? max(k, order_bits(x)) : min(k, order_bits(x));
    if (OP == kPick) k = bits(x);
  }
  MEMBER float end(const Voxel &p, double n, double inverse) {
    if (OP == kAdd) return __double2float_rn(p.mode == kAverage ? quotient(s, n, inverse) : s);
    return OP == kExtreme ? unorder_bits(k) : real(k);
  }
};

// alone is what a column is of one point: -0 becomes a sum.
template <int OP> DEVICE float alone(const Voxel &p, float x) {
  if (OP == kAdd) return __fadd_rn(x, 0.0f);
  if (OP == kExtreme) return x == x ? x : real(p.mode == kMaximum ? 0xff800000u : 0x7f800000u);
  return x;
}

// is_heavy leaves a row to write_heavy; where that has too many already, the thread goes on alone. Several threads have the row: each names it.
constexpr u32 kHeavy = 63;
template <int OP> DEVICE bool is_heavy(const Rows &r, u32 row) {
  if (OP == kPick) return false;
  u32 word = row + 1, free = 0; // a row has its place by its number, unless another is there
  u32 was = atomicCAS(&r.heavy[row % kHeavy], free, word);
  return was == free || was == word;
}

// ---- four columns a thread ----

// Where rows of four columns come from and go to.
struct Wide {
  const char *features;
  char *out;
  i64 step; // bytes from a row (cell) to the next
  u32 lanes, shift, size;
};

DEVICE Wide wide_of(const Voxel &p, const Bucket &b, const Rows &r) {
  Wide w;
  w.lanes = p.columns >> 2, w.size = size_of(p.feature_type);
  w.shift = (w.lanes & (w.lanes - 1)) ? 32 : __popc(w.lanes - 1);
  w.features = p.features + (b.entry * p.feature_entry + b.span.first * p.feature_row) * w.size;
  if (p.sparse) w.step = 4 * p.rows_row, w.out = p.rows + r.base * w.step;
  else w.step = 4 * p.out_z, w.out = p.out + 4 * b.entry * p.out_entry + (i64)((u64)b.number << p.shift) * w.step;
  return w;
}

DEVICE void put(const Wide &w, u64 row, u32 lane, float a, float b, float c, float d) {
  store_once<16>(w.out + (i64)row * w.step + lane * 16, {bits(a), bits(b), bits(c), bits(d)});
}

DEVICE u32 row_at(const Wide &w, u32 item) { return w.shift < 32 ? item >> w.shift : item / w.lanes; }

// Rows of one point are moves.
template <int OP> DEVICE void write_single(const Voxel &p, const Rows &r, const Wide &w) {
  const int U = 4;
  u32 total = r.single * w.lanes;
  for (u32 first = threadIdx.x; first < total; first += U * blockDim.x) {
    u32 cell[U], lane[U];
    float v[U][4];
#pragma unroll
    for (int u = 0; u < U; u++) {
      u32 item = min(first + u * blockDim.x, total - 1), row = row_at(w, item);
      cell[u] = r.named[row], lane[u] = item - row * w.lanes;
      u32 point = r.order[r.ends[cell[u]] - 1];
      load_wide(v[u], w.features + (u64)point * p.feature_bytes + lane[u] * 4 * w.size, p.feature_type);
    }
#pragma unroll
    for (int u = 0; u < U; u++)
      if (first + u * blockDim.x < total) put(w, cell[u], lane[u], alone<OP>(p, v[u][0]), alone<OP>(p, v[u][1]), alone<OP>(p, v[u][2]), alone<OP>(p, v[u][3]));
  }
}

template <int OP> DEVICE void write_some(const Voxel &p, const Rows &r, const Wide &w, u32 begin, u32 end) {
  u32 total = end * w.lanes;
  for (u32 item = begin * w.lanes + threadIdx.x; item < total; item += blockDim.x) {
    u32 row = row_at(w, item), lane = item - row * w.lanes, j, to;
    if (p.sparse && r.base + row >= p.capacity) break;
    u64 cell;
    row_range(p, r, row, cell, j, to);
    const char *at = w.features + lane * 4 * w.size;
    Reduced<OP> sum[4];
#pragma unroll
    for (int c = 0; c < 4; c++) sum[c].begin(p);
    u32 n = to - j;
    if (OP == kPick) to = j + 1;
    if (n > kMany && is_heavy<OP>(r, row)) continue;
    for (; j < to; j += 4) { // four points on their way at once
      float v[4][4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (i == 0 || j + i < to) load_wide(v[i], at + (u64)r.order[j + i] * p.feature_bytes, p.feature_type);
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (i == 0 || j + i < to) {
#pragma unroll
          for (int c = 0; c < 4; c++) sum[c].add(p, v[i][c]);
        }
    }
    double d = (double)n, inverse = OP == kAdd && p.mode == kAverage ? __drcp_rn(d) : 0.0;
    float v[4];
#pragma unroll
    for (int c = 0; c < 4; c++) v[c] = sum[c].end(p, d, inverse);
    put(w, p.sparse ? row : cell, lane, v[0], v[1], v[2], v[3]);
  }
}

DEVICE void write_empty(const Voxel &p, const Rows &r, const Wide &w) {
  u32 total = r.count * w.lanes;
  for (u32 item = r.some * w.lanes + threadIdx.x; item < total; item += blockDim.x) {
    u32 row = row_at(w, item);
    put(w, r.named[row], item - row * w.lanes, p.fill, p.fill, p.fill, p.fill);
  }
}

// ---- one column a thread, any strides and types ----

DEVICE void store_value(const Voxel &p, const Bucket &b, const Rows &r, u32 row, u64 cell, u32 column, float v) {
  if (p.sparse) *((float *)p.rows + (r.base + row) * p.rows_row + column * p.rows_column) = v;
  else *((float *)p.out + out_offset(p, b.entry, ((u64)b.number << p.shift) + cell) + column * p.out_column) = v;
}

template <int OP> DEVICE void write_any(const Voxel &p, const Bucket &b, const Rows &r) {
  u64 total = (u64)r.count * p.columns;
  u32 size = size_of(p.feature_type);
  const char *features = p.features + (b.entry * p.feature_entry + b.span.first * p.feature_row) * size;
  for (u64 item = threadIdx.x; item < total; item += blockDim.x) {
    u32 row = total >> 32 ? (u32)(item / p.columns) : (u32)item / p.columns, column = (u32)(item - (u64)row * p.columns), from, to;
    if (p.sparse && r.base + row >= p.capacity) break;
    u64 cell;
    row_range(p, r, row, cell, from, to);
    const char *at = features + column * p.feature_column * size;
    Reduced<OP> sum;
    sum.begin(p);
    u32 last = OP == kPick ? min(to, from + 1) : to;
    if (to - from > kMany && is_heavy<OP>(r, row)) continue;
    for (u32 j = from; j < last; j++) {
      const char *x = at + r.order[j] * p.feature_row * size;
      if (OP == kAdd && p.feature_type == kF64) sum.s = __dadd_rn(sum.s, *(const double *)x);
      else sum.add(p, load_real(x, p.feature_type));
    }
    float v = p.fill;
    if (from != to) v = sum.end(p, (double)(to - from), OP == kAdd && p.mode == kAverage ? __drcp_rn((double)(to - from)) : 0.0);
    store_value(p, b, r, row, cell, column, v);
  }
}

// Rows of many points, one after the other: all threads bring values, and one a column adds them up in their order while the next are on
// their way.
template <int OP> DEVICE void write_heavy(const Voxel &p, const Bucket &b, const Rows &r, double *values) {
  const u32 E = 2, A = 8; // values that a thread brings, and adds, at once
  u32 size = size_of(p.feature_type), t = threadIdx.x, threads = blockDim.x;
  const char *features = p.features + (b.entry * p.feature_entry + b.span.first * p.feature_row) * size;
  u32 group = min(p.columns, 32u), batch = min(kValues, E * threads) / group; // columns at once, and points of them
  for (u32 h = 0; h < kHeavy; h++) {
    u32 row = r.heavy[h];
    if (row-- == 0) continue;
    u64 cell;
    u32 from, to;
    row_range(p, r, row, cell, from, to);
    for (u32 first = 0; first < p.columns; first += group) {
      Reduced<OP> sum;
      sum.begin(p);
      u32 columns = min(group, p.columns - first);
      double next[E];
      auto bring = [&](u32 j) {
#pragma unroll
        for (u32 e = 0; e < E; e++) {
          u32 i = t + e * threads;
          if (j >= to || i >= min(batch, to - j) * columns) continue;
          const char *x = features + (r.order[j + i / columns] * p.feature_row + (first + i % columns) * p.feature_column) * size;
          next[e] = p.feature_type == kF64 ? *(const double *)x : (double)load_real(x, p.feature_type);
        }
      };
      bring(from);
      for (u32 j = from; j < to; j += batch) {
        u32 n = min(batch, to - j);
        __syncthreads();
#pragma unroll
        for (u32 e = 0; e < E; e++)
          if (t + e * threads < n * columns) values[t + e * threads] = next[e];
        __syncthreads();
        bring(j + batch);
        if (t < columns) {
          const double *at = values + t;
          for (u32 i = 0; i < n; i += A) {
            double x[A];
#pragma unroll
            for (u32 k = 0; k < A; k++, at += columns) x[k] = i + k < n ? *at : 0.0;
#pragma unroll
            for (u32 k = 0; k < A; k++) {
              if (i + k >= n) break;
              if (OP == kAdd) sum.s = __dadd_rn(sum.s, x[k]);
              else sum.add(p, __double2float_rn(x[k]));
            }
          }
        }
      }
      if (t < columns) {
        double n = (double)(to - from);
        store_value(p, b, r, row, cell, first + t, sum.end(p, n, __drcp_rn(n)));
      }
    }
  }
}

DEVICE void write_coords(const Voxel &p, const Bucket &b, const Rows &r) {
  for (u32 row = threadIdx.x; row < r.count && r.base + row < p.capacity; row += blockDim.x) {
    u64 cell;
    u32 from, to;
    row_range(p, r, row, cell, from, to);
    At at = at_of(p, cell + ((u64)b.number << p.shift));
    i32 *c = (i32 *)p.coords + (r.base + row) * p.coords_row;
    c[0] = (i32)b.entry;
    c[p.coords_column] = (i32)at.x;
    c[2 * p.coords_column] = (i32)at.y;
    c[3 * p.coords_column] = (i32)at.z;
    if (p.counts) ((i32 *)p.counts)[(r.base + row) * p.counts_step] = (i32)(to - from);
  }
}

// ---- order ----

// The points of a bucket: their cells, and their numbers among those of the entry.
struct List {
  u64 *cells;
  u32 *points;
};

// One pass of a stable radix sort, by four bits. Each warp has a run of neighbouring points; lane d keeps count of digit d.
DEVICE void sort_pass(const List &from, const List &to, u32 n, u32 shift, bool by_point, u32 *counts, u32 *partial) {
  u32 warps = blockDim.x >> 5, warp = threadIdx.x >> 5, l = lane();
  u32 run = (n + 32 * warps - 1) / (32 * warps) * 32, lo = min(n, warp * run), hi = min(n, lo + run), mine = 0;
  for (int write = 0; write < 2; write++) {
    for (u32 i = lo; i < hi; i += 32) {
      bool there = i + l < hi;
      u64 key = there ? by_point ? from.points[i + l] : from.cells[i + l] : 0;
      u32 digit = (u32)(key >> shift) & 15, all = __ballot_sync(0xffffffffu, there), same = all, counted = all;
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
      u32 i = first + threadIdx.x, v = i < 16 * warps ? counts[i] : 0, at = carry + block_scan(v, partial, total);
      if (i < 16 * warps) counts[i] = at;
      carry += total;
    }
    __syncthreads();
    mine = l < 16 ? counts[l * warps + warp] : 0;
  }
  __syncthreads();
}

// sorted_list gives the bucket's points by cell, and, if ordered, those of a cell in their order. a and c have room for all.
DEVICE List sorted_list(const Voxel &p, const Bucket &b, List a, List c, u32 n, bool ordered, u32 *counts, u32 *partial) {
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

// sort_few puts the points of some cells into their order.
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

// rows_before adds up the rows of all buckets before this one, which may still be at work: each tells its own number at once
// and the sum up to itself as soon as it knows it. Buckets are begun in order (by ticket), so that none waits for one that cannot run.
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
      u32 known = __ballot_sync(0xffffffffu, v >> 62 != 0), full = __ballot_sync(0xffffffffu, v >> 62 == 2);
      u32 needed = full ? (full & (0u - full)) * 2 - 1 : 0xffffffffu; // up to the nearest that knows the sum
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

// ---- a bucket ----

// Whether four neighbouring columns can be moved at once.
DEVICE bool is_wide(const Voxel &p) {
  u64 in = 4 * size_of(p.feature_type) - 1;
  return p.wide && ((u64)p.features & in) == 0 && ((u64)(p.sparse ? p.rows : p.out) & 15) == 0;
}

// kind_of says how much work a row of k points is: rows of a kind stand together, the empty ones last.
DEVICE u32 kind_of(u32 k) { return k <= 2 ? k - 1 : k <= 4 ? 2 : 3; }

// count_cells makes of the counts of a bucket's cells where each cell's points begin (sorted already: end), and names the rows. Each thread has
// kCells neighbouring cells. It says whether a cell has more points than one thread sorts.
template <int OP> DEVICE bool count_cells(const Voxel &p, const Bucket &b, u32 *ends, u16 *named, Rows &r, u32 &n, u32 *partial, u64 *kinds) {
  u32 mine = threadIdx.x * kCells, sum = 0, k[kCells];
  bool some = mine < b.cells, many = false; // b.cells of the last bucket may be anything; those beyond count nothing
  u64 kind = 0;                             // rows of each kind, 16 bits each
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
  u32 k0 = (u32)all & 0xffff, k1 = k0 + ((u32)all >> 16), k2 = k1 + ((u32)(all >> 32) & 0xffff), k3 = k2 + (u32)(all >> 48);
  r.single = p.sparse ? 0 : k0, r.some = k3, r.count = p.sparse ? k3 : b.cells;
  if (some) {
    u32 below = ((u32)kind & 0xffff) + ((u32)kind >> 16) + ((u32)(kind >> 32) & 0xffff) + (u32)(kind >> 48); // rows that are not empty
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

template <int OP> DEVICE void reduce(const Voxel &p) {
  extern __shared__ __align__(16) char shared[];
  __shared__ u32 partial[40], heavy[kHeavy];
  __shared__ u64 kinds[33];
  __shared__ double values[kValues]; // and the counters of the radix sort
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

  // How many points, and where each cell's begin.
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

  // The points by cell, and each cell's in their order.
  if ((u64)n * (many ? kListed : 4) > p.room) {
    if (t == 0) told = (i64)atomicAdd(&head(p)->cursor, (u64)n);
    __syncthreads();
    room = p.scratch + p.arena + told * kListed;
  }
  u32 *order = (u32 *)room;
  if (many) {
    u64 *first = (u64 *)room;
    u32 *second = (u32 *)(first + 2 * (u64)n);
    List l = sorted_list(p, b, {first, second}, {first + n, second + n}, n, OP != kExtreme && p.columns != 0, (u32 *)values, partial);
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
    each_word(p, b, p.log, [&](u32 word, u32 tile) { order[atomicAdd(&ends[word >> p.tile], 1u)] = point_of(p, b, word, tile); });
    __syncthreads();
    if (OP != kExtreme && p.columns != 0) sort_few(order, ends, named + r.single, r.some - r.single);
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

// As many blocks a multiprocessor as registers allow without much spilling: their waits overlap.
extern "C" __global__ void __launch_bounds__(256, 4) voxel_add(const __grid_constant__ Voxel p) { reduce<kAdd>(p); }
extern "C" __global__ void __launch_bounds__(256, 5) voxel_extreme(const __grid_constant__ Voxel p) { reduce<kExtreme>(p); }
extern "C" __global__ void __launch_bounds__(256, 5) voxel_pick(const __grid_constant__ Voxel p) { reduce<kPick>(p); }
