// FuseGradOp. Each thread owns one column of a sample, or a few, and adds the gradients of the
// target rows that read it, in their order. Target rows are loaded into shared memory in pieces.
// The first and last row that reads each sample of the block are known, so with ascending targets
// each sample visits only its own rows. There are no atomics on values, so each run gives the same
// bits (kernel.K17).
#include "any.cuh"

struct Grad {
  const char *times, *rows, *targets, *out;
  char *grad;
  i64 batch, work;
  i64 ragged_rows;
  i64 times_entry, times_row, rows_step;
  i64 targets_entry, targets_row;
  i64 out_entry, out_row, out_column;
  i64 grad_entry, grad_row, grad_column;
  i64 max_gap;
  double epsilon;
  i32 n, targets_n, columns;
  i32 samples, groups; // samples of a block; blocks per entry
  i32 chunk, chunks;   // columns of a block; chunks per row
  u8 type, out_type, grad_type, time_type, target_type, clock, mode, edge;
  u8 flags, pad[3];
};

struct __align__(16) GradRow {
  i32 left, right;
  double w;
};

const i32 kPiece = 256; // target rows per piece, and threads of a block
const i32 kOwned = 4;   // elements per thread

template <class T>
DEVICE void gather_rows(const Grad &p, const Span &v, i64 entry, i32 first, i32 count, i32 column0,
    i32 columns, GradRow *rows, i32 *lo, i32 *hi) {
  i32 thread = threadIdx.x;
  T total[kOwned];
#pragma unroll
  for (int i = 0; i < kOwned; i++) total[i] = 0;
  const char *times =
      p.times + ((p.flags & kOffsets) ? v.first * p.times_row : entry * p.times_entry);
  // Timestamps are not copied to shared memory, because this block needs only few rows of a piece.
  Timestamps timestamps = {nullptr, times, p.times_row, v.n, 0, p.time_type, p.clock};
  Way way = {p.mode, p.edge, p.max_gap, 0, 0, p.epsilon};
  bool ends = first == 0 || first + count >= v.n;
  i64 from =
      first > 0 ? load_time(times + (i64)(first - 1) * p.times_row, p.time_type, p.clock) : 0;
  i64 to = first + count < v.n
               ? load_time(times + (i64)(first + count) * p.times_row, p.time_type, p.clock)
               : 0;
#pragma unroll 1
  for (i32 piece = 0; piece < p.targets_n; piece += kPiece) {
    i32 r = piece + thread;
    bool mine = false;
    Found f = {};
    if (r < p.targets_n) {
      i64 t = load_time(
          p.targets + entry * p.targets_entry + (i64)r * p.targets_row, p.target_type, p.clock);
      // Rows that read a sample of first … first+count-1 lie between the neighbors of these
      // samples, or outside all timestamps. Extrapolation reads the two distinct timestamps nearest
      // to an end, which may be far inside if timestamps are equal.
      mine = p.edge == kExtrapolate ||
             ((first == 0 || t >= from) && (first + count >= v.n || t <= to));
      if (mine) {
        f = find_row<false>(timestamps, way, t);
        if (f.kind == kBlend && (p.type == kF64 ? f.w == 0 : __double2float_rn(f.w) == 0))
          found_copy(f, f.left);
        i32 l = f.left - first, k = f.right - first;
        mine =
            f.kind != kZero && ((l >= 0 && l < count) || (f.kind == kBlend && k >= 0 && k < count));
      }
    }
    if (!__syncthreads_or(mine)) continue;
#pragma unroll 1
    for (i32 i = thread; i < count; i += kPiece) {
      lo[i] = kPiece;
      hi[i] = -1;
    }
    __syncthreads();
    rows[thread] = GradRow{-1, -1, 0};
    if (mine) {
      rows[thread] = GradRow{f.left, f.kind == kBlend ? f.right : -1, f.w};
      i32 l = f.left - first, k = f.kind == kBlend ? f.right - first : -1;
      if (l >= 0 && l < count) {
        atomicMin(&lo[l], thread);
        atomicMax(&hi[l], thread);
      }
      if (k >= 0 && k < count) {
        atomicMin(&lo[k], thread);
        atomicMax(&hi[k], thread);
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kOwned; i++) {
      i32 at = thread + i * kPiece, s = at / columns;
      if (s >= count) continue;
      i32 c = column0 + at - s * columns, k = first + s;
#pragma unroll 1
      for (i32 j = lo[s]; j <= hi[s]; j++) {
        GradRow row = rows[j];
        if (row.left != k && row.right != k) continue;
        T g, w = (T)row.w;
        load_value(p.out + entry * p.out_entry + (i64)(piece + j) * p.out_row + c * p.out_column,
            p.out_type, g);
        if (row.right < 0) {
          total[i] = add(total[i], g);
          continue;
        }
        if (row.left == k) total[i] = fused(sub((T)1, w), g, total[i]);
        if (row.right == k) total[i] = fused(w, g, total[i]);
      }
    }
    __syncthreads();
  }
  Casts casts = {0, 0};
  char *grad = p.grad + ((p.flags & kOffsets) ? v.first * p.grad_row : entry * p.grad_entry);
#pragma unroll
  for (int i = 0; i < kOwned; i++) {
    i32 at = thread + i * kPiece, s = at / columns;
    if (s < count)
      store_value(
          grad + (i64)(first + s) * p.grad_row + (column0 + at - s * columns) * p.grad_column,
          p.grad_type, total[i], casts);
  }
}

// clear_rows fills samples with zeros.
DEVICE void clear_rows(const Grad &p, char *grad, i64 first, i64 count, i32 column0, i32 columns) {
#pragma unroll 1
  for (i64 i = threadIdx.x; i < count * columns; i += blockDim.x)
    store_bits(grad + (first + i / columns) * p.grad_row + (column0 + i % columns) * p.grad_column,
        size_of(p.grad_type), 0);
}

extern "C" __global__ void fuse_grad(const __grid_constant__ Grad p) {
  __shared__ GradRow rows[kPiece];
  __shared__ i32 lo[kPiece * kOwned], hi[kPiece * kOwned];
  let_next_grid_start();
  wait_for_previous_grid();
#pragma unroll 1
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    i64 q = work / p.chunks;
    i32 chunk = (i32)(work - q * p.chunks), column0 = chunk * p.chunk,
        columns = min(p.chunk, p.columns - column0);
    if (p.flags & kOffsets) {
      // Rows of a ragged tensor, which may belong to several entries. Rows before the first entry
      // and after the last belong to none.
      i64 from = q * p.samples, to = min(from + p.samples, p.ragged_rows);
      i64 begin = max(0ll, *(const i64 *)p.rows),
          end = min(*(const i64 *)(p.rows + p.batch * p.rows_step), p.ragged_rows);
      clear_rows(p, p.grad, from, min(begin, to) - from, column0, columns);
      clear_rows(p, p.grad, max(from, end), to - max(from, end), column0, columns);
      i64 b = 0, above = p.batch;
#pragma unroll 1
      while (b < above) { // entries that end at or before from
        i64 m = (b + above) >> 1;
        if (*(const i64 *)(p.rows + (m + 1) * p.rows_step) <= from) b = m + 1;
        else above = m;
      }
#pragma unroll 1
      for (; b < p.batch; b++) {
        i64 first = max(0ll, *(const i64 *)(p.rows + b * p.rows_step)),
            next = min(*(const i64 *)(p.rows + (b + 1) * p.rows_step), p.ragged_rows);
        if (first >= to) break;
        Span v = {first, (i32)max(0ll, next - first), 1};
        i64 lower = max(from, first), upper = min(to, next);
        if (lower >= upper) continue;
        if (p.type == kF64)
          gather_rows<double>(
              p, v, b, (i32)(lower - first), (i32)(upper - lower), column0, columns, rows, lo, hi);
        else
          gather_rows<float>(
              p, v, b, (i32)(lower - first), (i32)(upper - lower), column0, columns, rows, lo, hi);
        __syncthreads();
      }
      continue;
    }
    i64 entry = q / p.groups;
    i32 first = (i32)(q - entry * p.groups) * p.samples;
    Span v = {0, p.n, 1};
    if (p.flags & kLengths)
      v.n = (i32)min(max(*(const i64 *)(p.rows + entry * p.rows_step), 0ll), (i64)p.n);
    i32 count = min(p.samples, p.n - first), used = max(0, min(count, v.n - first));
    clear_rows(p, p.grad + entry * p.grad_entry, first + used, count - used, column0, columns);
    if (used > 0) {
      if (p.type == kF64)
        gather_rows<double>(p, v, entry, first, used, column0, columns, rows, lo, hi);
      else gather_rows<float>(p, v, entry, first, used, column0, columns, rows, lo, hi);
    }
    __syncthreads();
  }
}
