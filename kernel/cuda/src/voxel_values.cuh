// Reduces the points of one cell to a row of the result, with one or four columns per thread. Only
// voxel_rows.cu includes this file.
#pragma once
#include "voxel.cuh"

#define MEMBER __device__ __forceinline__

enum Reduce { kAdd, kExtreme, kPick };

// maximal number of points of a cell that one thread sorts; they are almost in order
constexpr u32 kFew = 96;
constexpr u32 kListed = 24;  // bytes per point in two lists
constexpr u32 kValues = 512; // values of heavy rows that are loaded at once
constexpr u32 kMany = 1024;  // number of points from which a whole block reads a row
constexpr u32 kCells = 8;    // adjacent cells per thread

// Rows is what a block knows about its rows. Without a list, rows are named by cell. Dense rows are
// sorted by their number of points, so that adjacent threads have the same amount of work.
struct Rows {
  const u32 *order; // points, by cell
  const u32 *ends;  // of the cells; with a list, of the rows
  const u16 *named; // cells of the rows; not for a list
  const u64 *cells; // list: cells of the points, sorted
  u32 count;        // rows
  u32 single;       // the first rows have one point each
  u32 some;         // rows before this index have points
  i64 base;         // sparse: number of rows in earlier buckets
  u32 *heavy;       // rows with many points, at positions derived from their number
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

DEVICE void load_wide(float *v, const char *p, u8 t) { // four adjacent values
  if (t == kF32) {
    Words<16> w = load_once<16>(p);
    v[0] = real(w.w[0]), v[1] = real(w.w[1]), v[2] = real(w.w[2]), v[3] = real(w.w[3]);
  } else {
    Words<8> w = load_once<8>(p);
    bool half = t == kF16;
    v[0] = half ? f16_low(w.w[0]) : bf16_low(w.w[0]),
    v[1] = half ? f16_high(w.w[0]) : bf16_high(w.w[0]);
    v[2] = half ? f16_low(w.w[1]) : bf16_low(w.w[1]),
    v[3] = half ? f16_high(w.w[1]) : bf16_high(w.w[1]);
  }
}

// quotient returns s/n, correctly rounded, from the inverse of n, with two corrections by the exact
// remainder. If a value is near the limits of the range, it divides.
DEVICE double quotient(double s, double n, double inverse) {
  double q = __dmul_rn(s, inverse);
  q = __fma_rn(__fma_rn(-q, n, s), inverse, q);
  q = __fma_rn(__fma_rn(-q, n, s), inverse, q);
  u32 exponent = (u32)(bits(q) >> 52) & 0x7ff;
  return exponent - 128 < 1792 || s == 0.0 ? q : __ddiv_rn(s, n);
}

// Reduced accumulates one column of a row.
template <int OP>
struct Reduced {
  double s;
  u32 k;
  MEMBER void begin(const Voxel &p) {
    s = 0.0;
    k = p.mode == kMaximum ? 0x007fffffu : 0xff800000u; // -Inf, +Inf
  }
  MEMBER void add(const Voxel &p, float x) {
    if (OP == kAdd) s = __dadd_rn(s, (double)x);
    if (OP == kExtreme && x == x)
      k = p.mode == kMaximum ? max(k, order_bits(x)) : min(k, order_bits(x));
    if (OP == kPick) k = bits(x);
  }
  MEMBER float end(const Voxel &p, double n, double inverse) {
    if (OP == kAdd) return __double2float_rn(p.mode == kAverage ? quotient(s, n, inverse) : s);
    return OP == kExtreme ? unorder_bits(k) : real(k);
  }
};

// alone returns a column of a cell with one point: as a sum, -0 becomes +0.
template <int OP>
DEVICE float alone(const Voxel &p, float x) {
  if (OP == kAdd) return __fadd_rn(x, 0.0f);
  if (OP == kExtreme) return x == x ? x : real(p.mode == kMaximum ? 0xff800000u : 0x7f800000u);
  return x;
}

// is_heavy registers a row for write_heavy. If too many rows are registered already, the thread
// computes the row itself. Several threads share a row, and each of them registers it.
constexpr u32 kHeavy = 63;
template <int OP>
DEVICE bool is_heavy(const Rows &r, u32 row) {
  if (OP == kPick) return false;
  // the position is derived from the row's number, unless another row has it
  u32 word = row + 1, free = 0;
  u32 was = atomicCAS(&r.heavy[row % kHeavy], free, word);
  return was == free || was == word;
}

// ---- four columns a thread ----

// Wide locates the source and result of rows with four columns.
struct Wide {
  const char *features;
  char *out;
  i64 step; // stride between rows (cells), in bytes
  u32 lanes, shift, size;
};

DEVICE Wide wide_of(const Voxel &p, const Bucket &b, const Rows &r) {
  Wide w;
  w.lanes = p.columns >> 2, w.size = size_of(p.feature_type);
  w.shift = (w.lanes & (w.lanes - 1)) ? 32 : __popc(w.lanes - 1);
  w.features = p.features + (b.entry * p.feature_entry + b.span.first * p.feature_row) * w.size;
  if (p.sparse) w.step = 4 * p.rows_row, w.out = p.rows + r.base * w.step;
  else
    w.step = 4 * p.out_z,
    w.out = p.out + 4 * b.entry * p.out_entry + (i64)((u64)b.number << p.shift) * w.step;
  return w;
}

DEVICE void put(const Wide &w, u64 row, u32 lane, float a, float b, float c, float d) {
  store_once<16>(w.out + (i64)row * w.step + lane * 16, {bits(a), bits(b), bits(c), bits(d)});
}

DEVICE u32 row_at(const Wide &w, u32 item) {
  return w.shift < 32 ? item >> w.shift : item / w.lanes;
}

// Rows with one point are copied.
template <int OP>
DEVICE void write_single(const Voxel &p, const Rows &r, const Wide &w) {
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
      load_wide(
          v[u], w.features + (u64)point * p.feature_bytes + lane[u] * 4 * w.size, p.feature_type);
    }
#pragma unroll
    for (int u = 0; u < U; u++)
      if (first + u * blockDim.x < total)
        put(w, cell[u], lane[u], alone<OP>(p, v[u][0]), alone<OP>(p, v[u][1]),
            alone<OP>(p, v[u][2]), alone<OP>(p, v[u][3]));
  }
}

template <int OP>
DEVICE void write_some(const Voxel &p, const Rows &r, const Wide &w, u32 begin, u32 end) {
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
    for (; j < to; j += 4) { // load four points at once
      float v[4][4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (i == 0 || j + i < to)
          load_wide(v[i], at + (u64)r.order[j + i] * p.feature_bytes, p.feature_type);
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

DEVICE void store_value(
    const Voxel &p, const Bucket &b, const Rows &r, u32 row, u64 cell, u32 column, float v) {
  if (p.sparse) *((float *)p.rows + (r.base + row) * p.rows_row + column * p.rows_column) = v;
  else
    *((float *)p.out + out_offset(p, b.entry, ((u64)b.number << p.shift) + cell) +
        column * p.out_column) = v;
}

template <int OP>
DEVICE void write_any(const Voxel &p, const Bucket &b, const Rows &r) {
  u64 total = (u64)r.count * p.columns;
  u32 size = size_of(p.feature_type);
  const char *features =
      p.features + (b.entry * p.feature_entry + b.span.first * p.feature_row) * size;
  for (u64 item = threadIdx.x; item < total; item += blockDim.x) {
    u32 row = total >> 32 ? (u32)(item / p.columns) : (u32)item / p.columns,
        column = (u32)(item - (u64)row * p.columns), from, to;
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
    if (from != to)
      v = sum.end(p, (double)(to - from),
          OP == kAdd && p.mode == kAverage ? __drcp_rn((double)(to - from)) : 0.0);
    store_value(p, b, r, row, cell, column, v);
  }
}

// Rows with many points, one after another. All threads load values. One thread per column adds
// them in their order while the next values are loaded.
template <int OP>
DEVICE void write_heavy(const Voxel &p, const Bucket &b, const Rows &r, double *values) {
  const u32 E = 2, A = 8; // values that a thread loads, and adds, at once
  u32 size = size_of(p.feature_type), t = threadIdx.x, threads = blockDim.x;
  const char *features =
      p.features + (b.entry * p.feature_entry + b.span.first * p.feature_row) * size;
  // columns that are handled at once, and their points
  u32 group = min(p.columns, 32u), batch = min(kValues, E * threads) / group;
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
          const char *x = features + (r.order[j + i / columns] * p.feature_row +
                                         (first + i % columns) * p.feature_column) *
                                         size;
          next[e] =
              p.feature_type == kF64 ? *(const double *)x : (double)load_real(x, p.feature_type);
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
