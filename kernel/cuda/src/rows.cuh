// Small rows: a thread makes one target row of one stream out of shared memory, where the entry's values lie, into shared memory, from where
// the tile goes out in whole words. Needs results whose rows follow each other without gaps.
#pragma once
#include "lanes.cuh"

template <class W> DEVICE void copy_row(char *to, const char *from, i32 n) {
  for (i32 i = 0; i < n; i++) ((W *)to)[i] = ((const W *)from)[i];
}

template <u8 T> DEVICE void lerp_small(char *to, const char *from, i32 left, i32 right, float w, i32 row, i32 columns) {
  const int size = Of<T>::size;
  const char *a = from + left * row, *b = from + right * row;
#pragma unroll 4
  for (i32 c = 0; c < columns; c++) store_shared<size>(to + c * size, lerp<T, 1>(load_shared<size>(a + c * size), load_shared<size>(b + c * size), w));
}

DEVICE void fuse_small(const Fuse &p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  wait_for_previous_grid();
  if (at_fault(p)) return;
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    i64 entry = p.tiles == 1 ? work : work / p.tiles;
    i32 from = (i32)(work - entry * p.tiles) * p.tile, n = min(p.tile, p.rows - from), thread = threadIdx.x;
    const char *targets = p.targets + entry * p.targets_entry + from * p.targets_row;
    char *out = p.out + entry * p.out_entry + from * p.out_row, *result = shared + p.result + staged_offset(out);
    i64 t = 0;
    i32 todo = n * p.streams;
    if (thread < todo) t = load_time(targets + thread % n * p.targets_row, p.time_type, p.clock);
    gather<true>(p, shared, 0, p.streams, entry);
    for (i32 i = thread; i < todo; i += blockDim.x) {
      i32 s = i / n, r = i - s * n;
      if (i != thread) t = load_time(targets + r * p.targets_row, p.time_type, p.clock);
      Found f = find_in<false>(p, shared, 0, s, entry, t);
      const Stream &x = p.s[s];
      float w = f.kind == kBlend ? __double2float_rn(f.w) : 0.0f;
      const char *values = shared + x.staged + staged_offset(values_of(x, ((const Span *)shared)[s], entry));
      char *to = result + r * (i32)p.out_row + (i32)x.out;
      if (f.kind == kZero) {
        for (i32 c = 0; c < x.columns * size_of(x.type); c++) to[c] = 0;
      } else if (x.type == kF32) lerp_small<kF32>(to, values, f.left, f.right, w, (i32)x.row, x.columns);
      else if (x.type == kBF16) lerp_small<kBF16>(to, values, f.left, f.right, w, (i32)x.row, x.columns);
      else lerp_small<kF16>(to, values, f.left, f.right, w, (i32)x.row, x.columns);
      if (p.valid != nullptr) p.valid[entry * p.valid_entry + (from + r) * p.valid_row + (p.first + s) * p.valid_stream] = f.valid;
    }
    __syncthreads();
    unstage(out, result, n * (i32)p.out_row, thread, blockDim.x);
    if (work + gridDim.x < p.work) __syncthreads();
  }
}
