// Entries that fit into shared memory whole: a block takes one after the other, and while it makes the rows of one, the copy engine brings
// targets, stamps and values of the next. Where the chip has none, the block copies itself, and waits.
#pragma once
#include "lanes.cuh"

// Shared memory: two words that count, two times the spans, the plan or the result, then two buffers.
DEVICE u64 *word_of(char *shared, i32 i) { return (u64 *)shared + i; }
DEVICE char *spans_of(const Fuse &p, char *shared, i32 i) { return shared + 16 + i * p.streams * (i32)sizeof(Span); }
DEVICE char *buffer_of(const Fuse &p, char *shared, i32 i) { return shared + p.buffer + i * p.buffer_bytes; }

// Where in a buffer things lie: as far from a multiple of 16 as in memory.
DEVICE char *targets_in(const Fuse &p, char *buffer, i64 entry) { return buffer + staged_offset(p.targets + entry * p.targets_entry); }
DEVICE char *stamps_in(const Fuse &p, const Stream &x, char *buffer, const char *times) { return buffer + p.pivots + x.pivots * 8 + staged_offset(times); }
DEVICE char *values_in(const Stream &x, char *buffer, const char *values) { return buffer + x.staged + staged_offset(values); }

// ends copies what of a range lies outside whole blocks of 16 bytes, by one warp; it gives the size of these blocks.
DEVICE u32 ends(char *to, const char *from, i32 n, i32 lane) {
  i32 head = min(n, (16 - staged_offset(from)) & 15), body = (n - head) & ~15;
  if (lane < head) to[lane] = from[lane];
  if (head + body + lane < n) to[head + body + lane] = from[head + body + lane];
  return (u32)body;
}
DEVICE void bulk_body(char *to, const char *from, i32 n, u64 *word) {
  i32 head = min(n, (16 - staged_offset(from)) & 15), body = (n - head) & ~15;
  if (body > 0) bulk_copy(to + head, from + head, (u32)body, word);
}

// bring starts the copies of an entry into a buffer. With the copy engine it is for the first warp alone.
DEVICE void bring(const Fuse &p, char *shared, i32 into, i64 entry) {
  i32 thread = threadIdx.x, streams = p.streams;
  Span *spans = (Span *)spans_of(p, shared, into);
  char *buffer = buffer_of(p, shared, into);
  if (p.ragged) {
    if (thread < streams) spans[thread] = span_of(p.s[thread], entry);
    if (kBulk) __syncwarp();
    else __syncthreads();
  }
  const char *targets = p.targets + entry * p.targets_entry;
  if (!kBulk) {
    stage(targets_in(p, buffer, entry), targets, p.rows * 8, thread, blockDim.x);
#pragma unroll 1
    for (i32 s = 0; s < streams; s++) {
      const Stream &x = p.s[s];
      Span v = span(p, (const char *)spans, 0, s);
      const char *times = times_of(x, v, entry), *values = values_of(x, v, entry);
      stage(stamps_in(p, x, buffer, times), times, v.n * 8, thread, blockDim.x);
      stage(values_in(x, buffer, values), values, v.n * (i32)x.row, thread, blockDim.x);
    }
    return;
  }
  u32 bytes = ends(targets_in(p, buffer, entry), targets, p.rows * 8, thread);
#pragma unroll 1
  for (i32 s = 0; s < streams; s++) {
    const Stream &x = p.s[s];
    Span v = span(p, (const char *)spans, 0, s);
    const char *times = times_of(x, v, entry), *values = values_of(x, v, entry);
    bytes += ends(stamps_in(p, x, buffer, times), times, v.n * 8, thread);
    bytes += ends(values_in(x, buffer, values), values, v.n * (i32)x.row, thread);
  }
  if (thread == 0) {
    u64 *word = word_of(shared, into);
    bulk_expect(word, bytes);
    bulk_body(targets_in(p, buffer, entry), targets, p.rows * 8, word);
#pragma unroll 1
    for (i32 s = 0; s < streams; s++) {
      const Stream &x = p.s[s];
      Span v = span(p, (const char *)spans, 0, s);
      const char *times = times_of(x, v, entry), *values = values_of(x, v, entry);
      bulk_body(stamps_in(p, x, buffer, times), times, v.n * 8, word);
      bulk_body(values_in(x, buffer, values), values, v.n * (i32)x.row, word);
    }
  }
}

// in_ns turns staged seconds into nanoseconds, in place.
DEVICE void in_ns(i64 *at, i32 n) {
#pragma unroll 1
  for (i32 i = threadIdx.x; i < n; i += blockDim.x) at[i] = seconds_ns(__longlong_as_double(at[i]));
}

// Entry is an entry in shared memory.
struct Entry {
  i64 number;
  char *buffer;
  const char *spans;
};

template <class Make> DEVICE void for_entries(const Fuse &p, char *shared, const Make &make) {
  i64 entry = blockIdx.x;
  bool first_warp = threadIdx.x < 32;
  if (kBulk && threadIdx.x == 0) {
    bulk_init(word_of(shared, 0));
    bulk_init(word_of(shared, 1));
  }
  wait_for_previous_grid();
  if (at_fault(p)) return;
  __syncthreads();
  if (!kBulk || first_warp) bring(p, shared, 0, entry);
  __syncthreads();
  i32 at = 0;
  u32 round = 0;
#pragma unroll 1
  for (; entry < p.batch; entry += gridDim.x) {
    if (kBulk) {
      if (first_warp && entry + gridDim.x < p.batch) bring(p, shared, at ^ 1, entry + gridDim.x);
      bulk_wait(word_of(shared, at), round);
    } else {
      copy_async_wait();
      __syncthreads();
    }
    Entry e = {entry, buffer_of(p, shared, at), spans_of(p, shared, at)};
    bool seconds = false;
    if (p.time_type == kF64) {
      in_ns((i64 *)targets_in(p, e.buffer, entry), p.rows);
      seconds = true;
    }
#pragma unroll 1
    for (i32 s = 0; s < p.streams; s++) {
      const Stream &x = p.s[s];
      if (!(x.flags & kTimesF64)) continue;
      Span v = span(p, e.spans, 0, s);
      in_ns((i64 *)stamps_in(p, x, e.buffer, times_of(x, v, entry)), v.n);
      seconds = true;
    }
    if (seconds) __syncthreads();
    make(e);
    __syncthreads();
    if (!kBulk && entry + gridDim.x < p.batch) bring(p, shared, at ^ 1, entry + gridDim.x);
    at ^= 1;
    round ^= at == 0;
  }
}

// find_staged plans target row r of a stream.
DEVICE Found find_staged(const Fuse &p, const Entry &e, i32 s, i32 r) {
  const Stream &x = p.s[s];
  Span v = span(p, e.spans, 0, s);
  i64 t = ((const i64 *)targets_in(p, e.buffer, e.number))[r];
  return find_at(p, x, v, (const i64 *)stamps_in(p, x, e.buffer, times_of(x, v, e.number)), e.number, t);
}

// ---- columns of E values ----

template <int E, bool MAP> DEVICE void fuse_staged(const Fuse &p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  u32 overflow = 0;
  Row *plan = (Row *)(shared + p.plan);
  i32 lanes = max(1, (i32)blockDim.x / p.vectors), threads = lanes * p.vectors, lane = (i32)threadIdx.x / p.vectors, s = 0, streams = p.streams;
  i32 column = (i32)threadIdx.x - lane * p.vectors;
#pragma unroll 1
  while (s + 1 < streams && column >= p.s[s + 1].vector) s++;
  const Stream &x = p.s[s];
  column = (column - x.vector) * E;
  for_entries(p, shared, [&](const Entry &e) {
#pragma unroll 1
    for (i32 i = threadIdx.x; i < p.rows * streams; i += blockDim.x) {
      i32 r = i / streams, k = i - r * streams;
      Found f = find_staged(p, e, k, r);
      set_row(plan[i], f);
      if (p.valid != nullptr) set_valid(p, e.number, r, k, f.valid);
    }
    __syncthreads();
    if ((i32)threadIdx.x < threads) {
      Span rows = span(p, e.spans, 0, s);
      const char *values = values_of(x, rows, e.number);
      Lane l = {values_in(x, e.buffer, values) + column * size_of(x.type), p.out + e.number * p.out_entry + x.out + column * size_of(p.out_type),
                (i32)x.row, (i32)p.out_row, plan + s, streams, p.rows, lane, lanes};
      if (rows.n == 0) {
        zero_rows(l, E * size_of(p.out_type));
      } else if constexpr (MAP) {
        Finish<E> f;
        set_finish<E>(f, p.table, x.extra, column, p.out_type);
        map_lane<E, true>(l, x.type, f, p.counts != nullptr, overflow);
      } else {
        lerp_lane<E, true>(l, x.type);
      }
    }
  });
  if (MAP && p.counts != nullptr) add_counts(p.counts, Casts{overflow, 0});
}

// ---- small rows: a thread makes a whole row, into shared memory, from where the result goes out in whole words ----

// Needs results whose rows, and entries, follow each other without gaps.
template <u8 T, bool MAP> DEVICE void small_row(char *to, const char *a, const char *b, float w, i32 columns, const char *table, i32 extra, u8 type, bool counts, u32 &overflow) {
  const int size = Of<T>::size;
#pragma unroll 4
  for (i32 c = 0; c < columns; c++) {
    Words<size> x = load_shared<size>(a + c * size), y = load_shared<size>(b + c * size);
    if constexpr (MAP) {
      float v, u;
      Of<T>::template open<1>(x, &v);
      Of<T>::template open<1>(y, &u);
      if (w != 0) v = __fmaf_rn(w, __fsub_rn(u, v), v);
      Finish<1> f;
      set_finish<1>(f, table, extra, c, type);
      finish_row<T, 1, false>(f, &v);
      if (counts) overflow += count_row<1>(type, &v);
      if (type == kF32) store_shared<4>(to + c * 4, Of<kF32>::close<1>(&v));
      else store_shared<2>(to + c * 2, type == kBF16 ? Of<kBF16>::close<1>(&v) : Of<kF16>::close<1>(&v));
    } else {
      store_shared<size>(to + c * size, lerp<T, 1>(x, y, w, ~0u));
    }
  }
}

template <bool MAP> DEVICE void fuse_small(const Fuse &p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  u32 overflow = 0;
  for_entries(p, shared, [&](const Entry &e) {
    char *out = p.out + e.number * p.out_entry, *result = shared + p.result + staged_offset(out);
#pragma unroll 1
    for (i32 i = threadIdx.x; i < p.rows * p.streams; i += blockDim.x) {
      i32 s = p.streams == 1 ? 0 : i / p.rows, r = i - s * p.rows;
      Found f = find_staged(p, e, s, r);
      if (p.valid != nullptr) set_valid(p, e.number, r, s, f.valid);
      const Stream &x = p.s[s];
      char *to = result + r * (i32)p.out_row + (i32)x.out;
      if (f.kind == kZero) {
#pragma unroll 1
        for (i32 c = 0; c < x.columns * size_of(p.out_type); c++) to[c] = 0;
        continue;
      }
      float w = f.kind == kBlend ? __double2float_rn(f.w) : 0.0f;
      const char *values = values_in(x, e.buffer, values_of(x, span(p, e.spans, 0, s), e.number));
      const char *a = values + f.left * (i32)x.row, *b = values + f.right * (i32)x.row;
      bool counts = p.counts != nullptr;
      if (x.type == kF32) small_row<kF32, MAP>(to, a, b, w, x.columns, p.table, x.extra, p.out_type, counts, overflow);
      else if (x.type == kBF16) small_row<kBF16, MAP>(to, a, b, w, x.columns, p.table, x.extra, p.out_type, counts, overflow);
      else if (x.type == kF16) small_row<kF16, MAP>(to, a, b, w, x.columns, p.table, x.extra, p.out_type, counts, overflow);
      else if constexpr (MAP) small_row<kU8, MAP>(to, a, b, w, x.columns, p.table, x.extra, p.out_type, counts, overflow);
    }
    __syncthreads();
    unstage(out, result, p.rows * (i32)p.out_row, threadIdx.x, blockDim.x);
  });
  if (MAP && p.counts != nullptr) add_counts(p.counts, Casts{overflow, 0});
}
