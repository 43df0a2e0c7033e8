// Kernels for entries that fit into shared memory as a whole. A block handles one entry after
// another. While it computes the rows of one, the copy engine loads targets, timestamps and values
// of the next. If the chip has no copy engine, the block copies the data itself and waits.
#pragma once
#include "lanes.cuh"

// Shared memory contains two counter words, two arrays of spans, the plan or the result, then two
// buffers.
DEVICE u64 *word_of(char *shared, i32 i) { return (u64 *)shared + i; }
DEVICE char *spans_of(const Fuse &p, char *shared, i32 i) {
  return shared + 16 + i * p.streams * (i32)sizeof(Span);
}
DEVICE char *buffer_of(const Fuse &p, char *shared, i32 i) {
  return shared + p.buffer + i * p.buffer_bytes;
}

// Addresses in a buffer keep the offset from a multiple of 16 that they have in memory.
DEVICE char *targets_in(const Fuse &p, char *buffer, i64 entry) {
  return buffer + staged_offset(p.targets + entry * p.targets_entry);
}
DEVICE char *timestamps_in(const Fuse &p, const Stream &x, char *buffer, const char *times) {
  return buffer + p.pivots + x.pivots * 8 + staged_offset(times);
}
DEVICE char *values_in(const Stream &x, char *buffer, const char *values) {
  return buffer + x.staged + staged_offset(values);
}

// ends copies the parts of a range that are outside whole blocks of 16 bytes, with one warp. It
// returns the size of the whole blocks.
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

// bring starts the copies of an entry into a buffer. With the copy engine, only the first warp
// calls it.
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
      stage(timestamps_in(p, x, buffer, times), times, v.n * 8, thread, blockDim.x);
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
    bytes += ends(timestamps_in(p, x, buffer, times), times, v.n * 8, thread);
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
      bulk_body(timestamps_in(p, x, buffer, times), times, v.n * 8, word);
      bulk_body(values_in(x, buffer, values), values, v.n * (i32)x.row, word);
    }
  }
}

// in_ns converts staged seconds to nanoseconds, in place.
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

// send starts writing the results of an entry, which are one range, to memory. The caller must have
// passed a barrier after the results were written. Before the barrier, each thread must have called
// bulk_written.
DEVICE void send(char *to, const char *result, i32 n) {
  if (!kBulk) {
    unstage(to, result, n, threadIdx.x, blockDim.x);
    return;
  }
  i32 head = min(n, (16 - staged_offset(to)) & 15), body = (n - head) & ~15, thread = threadIdx.x;
  if (thread == 0 && body > 0) bulk_store(to + head, result + head, (u32)body);
  if (thread < head) to[thread] = result[thread];
  if (head + body + thread < n) to[head + body + thread] = result[head + body + thread];
}

// for_entries calls make for one entry after another. With SEND, make passes a barrier before it
// writes results, because those of the previous entry may still be sent, and send writes them. A
// single buffer is refilled as soon as make is finished with it.
template <bool SEND, class Make>
DEVICE void for_entries(const Fuse &p, char *shared, const Make &make) {
  i64 entry = blockIdx.x;
  bool first_warp = threadIdx.x < 32, two = p.buffers == 2;
  if (kBulk && threadIdx.x == 0) {
    bulk_init(word_of(shared, 0));
    bulk_init(word_of(shared, 1));
  }
  wait_for_previous_grid();
  __syncthreads();
  if (!kBulk || first_warp) bring(p, shared, 0, entry);
  __syncthreads();
  i32 at = 0;
  u32 round = 0;
#pragma unroll 1
  for (; entry < p.batch; entry += gridDim.x) {
    bool more = entry + gridDim.x < p.batch;
    if (kBulk) {
      if (two && more && first_warp) bring(p, shared, at ^ 1, entry + gridDim.x);
      bulk_wait(word_of(shared, at), round);
      if (SEND && threadIdx.x == 0) bulk_stored();
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
      in_ns((i64 *)timestamps_in(p, x, e.buffer, times_of(x, v, entry)), v.n);
      seconds = true;
    }
    if (seconds) __syncthreads();
    make(e);
    if (SEND) bulk_written();
    __syncthreads();
    if (SEND) {
      char *out = p.out + entry * p.out_entry;
      send(out, shared + p.result + staged_offset(out), p.rows * (i32)p.out_row);
    }
    if (two) {
      if (!kBulk && more) bring(p, shared, at ^ 1, entry + gridDim.x);
      at ^= 1;
      round ^= at == 0;
    } else {
      if (more && (!kBulk || first_warp)) bring(p, shared, 0, entry + gridDim.x);
      round ^= 1;
    }
  }
  if (SEND && kBulk && threadIdx.x == 0) bulk_finished();
}

// find_staged plans target row r of a stream.
DEVICE Brief find_staged(const Fuse &p, const Entry &e, i32 s, i32 r) {
  const Stream &x = p.s[s];
  Span v = span(p, e.spans, 0, s);
  i64 t = ((const i64 *)targets_in(p, e.buffer, e.number))[r];
  return find_at(
      p, s, v, (const i64 *)timestamps_in(p, x, e.buffer, times_of(x, v, e.number)), e.number, t);
}

// ---- columns of E values ----

// NearRow is a row of a plan: offsets of its samples in shared memory. For a row of zeros they
// point to a stored row of zeros.
struct __align__(16) NearRow {
  i32 a, b; // in bytes from the start of shared memory
  float w;
  u32 pad;
};

// NearLane is the work of a thread: E columns of one stream, and every step-th row from first on.
struct NearLane {
  const char *from;
  char *to; // result of the first row
  const NearRow *plan;
  i32 plan_step, out_step, n;
};

template <u8 T, int E>
struct NearPair {
  Words<E * Of<T>::size> a, b;
  float w;
};

template <u8 T, int E>
DEVICE NearPair<T, E> load_near_pair(const NearLane &l, const NearRow &row) {
  NearPair<T, E> p;
  p.a = load_shared<E * Of<T>::size>(l.from + row.a);
  p.b = load_shared<E * Of<T>::size>(l.from + row.b);
  p.w = row.w;
  return p;
}

// near_lerp computes the rows, UNROLL of them at a time.
template <u8 T, int E>
DEVICE void near_lerp(NearLane l) {
  const int size = E * Of<T>::size;
#pragma unroll 1
  for (; l.n >= UNROLL; l.n -= UNROLL) {
    NearPair<T, E> p[UNROLL];
    NearRow row[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) row[u] = l.plan[u * l.plan_step];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) p[u] = load_near_pair<T, E>(l, row[u]);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      store_once<size>(l.to, lerp<T, E>(p[u].a, p[u].b, p[u].w));
      l.to += l.out_step;
    }
    l.plan += UNROLL * l.plan_step;
  }
#pragma unroll 1
  for (; l.n > 0; l.n--) {
    NearPair<T, E> p = load_near_pair<T, E>(l, *l.plan);
    store_once<size>(l.to, lerp<T, E>(p.a, p.b, p.w));
    l.to += l.out_step;
    l.plan += l.plan_step;
  }
}

template <int E>
DEVICE void fuse_staged(const Fuse &p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  NearRow *plan = (NearRow *)(shared + p.plan);
  i32 lanes = (i32)blockDim.x / p.vectors, lane = (i32)threadIdx.x / p.vectors, s = 0,
      streams = p.streams;
  i32 column = (i32)threadIdx.x - lane * p.vectors;
#pragma unroll 1
  while (s + 1 < streams && column >= p.s[s + 1].vector) s++;
  const Stream &x = p.s[s];
  column = (column - x.vector) * E;
  for (i32 i = threadIdx.x * 16; i < p.zero_bytes; i += blockDim.x * 16)
    store_shared<16>(shared + p.zeros + i, Words<16>{});
  for_entries<false>(p, shared, [&](const Entry &e) {
#pragma unroll 1
    for (i32 i = threadIdx.x; i < p.rows * streams; i += blockDim.x) {
      i32 r = i / streams, k = i - r * streams;
      const Stream &y = p.s[k];
      Brief found = find_staged(p, e, k, r);
      i32 values =
          (i32)(values_in(y, e.buffer, values_of(y, span(p, e.spans, 0, k), e.number)) - shared);
      NearRow row;
      row.a = found.zero ? p.zeros : values + found.left * (i32)y.row;
      row.b = found.zero ? p.zeros : values + found.right * (i32)y.row;
      row.w = found.zero ? 0.0f : found.w;
      row.pad = 0;
      plan[i] = row;
      if (p.valid != nullptr) set_valid(p, e.number, r, k, found.valid);
    }
    __syncthreads();
    if (lane >= lanes) return;
    NearLane l;
    l.from = shared + column * size_of(x.type);
    l.to =
        p.out + e.number * p.out_entry + x.out + column * size_of(x.type) + (i64)lane * p.out_row;
    l.plan = plan + lane * streams + s;
    l.plan_step = lanes * streams;
    l.out_step = lanes * (i32)p.out_row;
    l.n = (p.rows - lane + lanes - 1) / lanes;
    if (x.type == kBF16) near_lerp<kBF16, E>(l);
    else if (x.type == kF32) near_lerp<kF32, E>(l);
    else near_lerp<kF16, E>(l);
  });
}

// ---- small rows: a thread computes a whole row in shared memory, which is written out in whole
// words ----

// The rows and entries of the result must be adjacent.
template <u8 T, bool MAP>
DEVICE void small_row(char *to, const char *a, const char *b, float w, i32 columns,
    const char *table, i32 extra, u8 type, bool counts, u32 &overflow) {
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
      finish_row<T, 1, false, kF32>(f, &v);
      if (counts) overflow += count_row<1>(type, &v);
      if (type == kF32) store_shared<4>(to + c * 4, Of<kF32>::close<1>(&v));
      else
        store_shared<2>(
            to + c * 2, type == kBF16 ? Of<kBF16>::close<1>(&v) : Of<kF16>::close<1>(&v));
    } else {
      store_shared<size>(to + c * size, lerp<T, 1>(x, y, w));
    }
  }
}

template <bool MAP>
DEVICE void fuse_small(const Fuse &p) {
  extern __shared__ __align__(16) char shared[];
  let_next_grid_start();
  u32 overflow = 0;
  for_entries<true>(p, shared, [&](const Entry &e) {
    char *out = p.out + e.number * p.out_entry, *result = shared + p.result + staged_offset(out);
    if (kBulk) __syncthreads(); // thread 0 has waited for the results before
#pragma unroll 1
    for (i32 i = threadIdx.x; i < p.rows * p.streams; i += blockDim.x) {
      i32 s = p.streams == 1 ? 0 : i / p.rows, r = i - s * p.rows;
      Brief f = find_staged(p, e, s, r);
      if (p.valid != nullptr) set_valid(p, e.number, r, s, f.valid);
      const Stream &x = p.s[s];
      char *to = result + r * (i32)p.out_row + (i32)x.out;
      if (f.zero) {
#pragma unroll 1
        for (i32 c = 0; c < x.columns * size_of(p.out_type); c++) to[c] = 0;
        continue;
      }
      float w = f.w;
      const char *values = values_in(x, e.buffer, values_of(x, span(p, e.spans, 0, s), e.number));
      const char *a = values + f.left * (i32)x.row, *b = values + f.right * (i32)x.row;
      bool counts = p.counts != nullptr;
      if (x.type == kF32)
        small_row<kF32, MAP>(
            to, a, b, w, x.columns, p.table, x.extra, p.out_type, counts, overflow);
      else if (x.type == kBF16)
        small_row<kBF16, MAP>(
            to, a, b, w, x.columns, p.table, x.extra, p.out_type, counts, overflow);
      else if (x.type == kF16)
        small_row<kF16, MAP>(
            to, a, b, w, x.columns, p.table, x.extra, p.out_type, counts, overflow);
      else if constexpr (MAP)
        small_row<kU8, MAP>(to, a, b, w, x.columns, p.table, x.extra, p.out_type, counts, overflow);
    }
  });
  if (MAP && p.counts != nullptr) add_counts(p.counts, Casts{overflow, 0});
}
