// What all kernels share: types, conversions that agree with the reference to the bit, memory of any width, asynchronous
// copies. No CUDA header is used. Whatever is PTX has a plain twin under ROBOCACHE_SIM, where the same files run on a host.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

// The numbers of robocache.DType.
enum DType : u8 { kBool = 1, kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kF16, kBF16, kF32, kF64 };

#define DEVICE static __device__ __forceinline__

// COLD is for what is large and seldom runs: one copy an image.
#define COLD static __device__ __noinline__

DEVICE i32 size_of(u8 t) {
  return t >= kF16 ? (t == kF64 ? 8 : t == kF32 ? 4 : 2) : t >= kU8 ? 1 << (t - kU8) : t >= kI8 ? 1 << (t - kI8) : 1;
}

DEVICE u32 bits(float x) { return __float_as_uint(x); }
DEVICE float real(u32 x) { return __uint_as_float(x); }
DEVICE u64 bits(double x) { return (u64)__double_as_longlong(x); }
DEVICE double real(u64 x) { return __longlong_as_double((i64)x); }

// ---- half precision ----

DEVICE float bf16_float(u16 h) { return real((u32)h << 16); }
DEVICE float bf16_low(u32 pair) { return real(pair << 16); }
DEVICE float bf16_high(u32 pair) { return real(pair & 0xffff0000u); }

#ifdef ROBOCACHE_SIM

DEVICE u16 float_bf16(float x) {
  u32 b = bits(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return 0x7fff; // the rounding would carry some NaN into infinity
  return (u16)((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}
DEVICE float f16_float(u16 h) {
  u32 sign = (u32)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
  if (e == 31) return real(sign | 0x7f800000u | m << 13);
  if (e != 0) return real(sign | (e + 112) << 23 | m << 13);
  return real(sign | bits((float)m * 5.9604644775390625e-8f)); // subnormal: m·2^-24, exact
}
DEVICE u16 float_f16(float x) {
  u32 b = bits(x);
  u16 sign = (u16)(b >> 16 & 0x8000);
  b &= 0x7fffffffu;
  if (b > 0x7f800000u) return 0x7fff;
  if (b >= 0x477ff000u) return sign | 0x7c00; // 65520: half way to the next power
  if (b >= 0x38800000u) return sign | (u16)((b + 0xfffu + (b >> 13 & 1) - (112u << 23)) >> 13);
  return sign | (u16)(bits(real(b) + 0.5f) - 0x3f000000u); // subnormal: the addition rounds
}
DEVICE u32 pack_bf16(float low, float high) { return float_bf16(low) | (u32)float_bf16(high) << 16; }
DEVICE u32 pack_f16(float low, float high) { return float_f16(low) | (u32)float_f16(high) << 16; }

#else

DEVICE u16 float_bf16(float x) {
  u16 h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
DEVICE float f16_float(u16 h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
DEVICE u16 float_f16(float x) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
DEVICE u32 pack_bf16(float low, float high) {
  u32 p;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(high), "f"(low));
  return p;
}
DEVICE u32 pack_f16(float low, float high) {
  u32 p;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(high), "f"(low));
  return p;
}

#endif

DEVICE float f16_low(u32 pair) { return f16_float((u16)pair); }
DEVICE float f16_high(u32 pair) { return f16_float((u16)(pair >> 16)); }

// odd_float rounds to float32, inexact values to the neighbour with an odd significand: rounding the result to a
// narrower type is then the same as rounding x once.
DEVICE float odd_float(double x) {
  float f = __double2float_rz(x);
  return (double)f == x || x != x ? f : real(bits(f) | 1);
}

// ---- any type ----

// load_float reads what computes in float32; wide integers are rounded once.
DEVICE float load_float(const char *p, u8 t) {
  switch (t) {
  case kF32: return *(const float *)p;
  case kF16: return f16_float(*(const u16 *)p);
  case kBF16: return bf16_float(*(const u16 *)p);
  case kF64: return __double2float_rn(*(const double *)p);
  case kBool: return *(const u8 *)p ? 1.0f : 0.0f;
  case kU8: return (float)*(const u8 *)p;
  case kI8: return (float)*(const i8 *)p;
  case kI16: return (float)*(const i16 *)p;
  case kU16: return (float)*(const u16 *)p;
  case kI32: return __int2float_rn(*(const i32 *)p);
  case kU32: return __uint2float_rn(*(const u32 *)p);
  case kI64: return __ll2float_rn(*(const i64 *)p);
  case kU64: return __ull2float_rn(*(const u64 *)p);
  }
  return 0;
}

DEVICE double load_double(const char *p, u8 t) {
  switch (t) {
  case kF64: return *(const double *)p;
  case kI32: return (double)*(const i32 *)p;
  case kU32: return (double)*(const u32 *)p;
  case kI64: return __ll2double_rn(*(const i64 *)p);
  case kU64: return __ull2double_rn(*(const u64 *)p);
  }
  return (double)load_float(p, t);
}

// Casts that changed more than a rounding (kernel K11); one of these lives in a thread and is added up at its end.
struct Casts {
  u32 overflow, nan;
};

DEVICE bool is_finite(float x) { return (bits(x) & 0x7f800000u) != 0x7f800000u; }
DEVICE bool is_finite(double x) { return (bits(x) >> 52 & 0x7ff) != 0x7ff; }

DEVICE void store_bits(char *p, i32 size, u64 v) {
  if (size == 1) *(u8 *)p = (u8)v;
  else if (size == 2) *(u16 *)p = (u16)v;
  else if (size == 4) *(u32 *)p = (u32)v;
  else *(u64 *)p = v;
}

DEVICE u64 load_bits(const char *p, i32 size) {
  if (size == 1) return *(const u8 *)p;
  if (size == 2) return *(const u16 *)p;
  if (size == 4) return *(const u32 *)p;
  return *(const u64 *)p;
}

// store_double rounds once to the type of the memory.
DEVICE void store_double(char *p, u8 t, double x, Casts &c) {
  if (t == kF64) {
    *(double *)p = x;
    return;
  }
  if (t == kF32) {
    float f = __double2float_rn(x);
    c.overflow += !is_finite(f) && is_finite(x);
    *(float *)p = f;
    return;
  }
  if (t == kF16 || t == kBF16) {
    float f = odd_float(x);
    u16 h = t == kF16 ? float_f16(f) : float_bf16(f), inf = t == kF16 ? 0x7c00 : 0x7f80;
    c.overflow += (h & 0x7fff) == inf && (bits(x) & ~(1ull << 63)) != 0x7ffull << 52;
    *(u16 *)p = h;
    return;
  }
  bool is_signed = t >= kI8 && t <= kI64;
  i32 size = size_of(t), width = 8 * size;
  u64 v;
  double hi = real((u64)(1023 + width - (is_signed ? 1 : 0)) << 52), lo = is_signed ? -hi : 0; // powers of two
  x = trunc(x);
  if (x != x) {
    c.nan++;
    v = 0;
  } else if (x < lo) {
    c.overflow++;
    v = is_signed ? 1ull << (width - 1) : 0;
  } else if (x >= hi) {
    c.overflow++;
    v = is_signed ? (1ull << (width - 1)) - 1 : ~0ull;
  } else {
    v = x < 0 ? (u64)__double2ll_rz(x) : __double2ull_rz(x);
  }
  store_bits(p, size, v);
}

DEVICE void store_float(char *p, u8 t, float x, Casts &c) {
  if (t == kF32) {
    *(float *)p = x;
  } else if (t == kF16 || t == kBF16) {
    u16 h = t == kF16 ? float_f16(x) : float_bf16(x), inf = t == kF16 ? 0x7c00 : 0x7f80;
    c.overflow += (h & 0x7fff) == inf && (bits(x) & 0x7fffffffu) != 0x7f800000u;
    *(u16 *)p = h;
  } else {
    store_double(p, t, (double)x, c);
  }
}

// ---- memory of any width ----

// Words is BYTES bytes as registers: 16, 8, 4, 2 or 1 of them move at once.
template <int BYTES> struct Words {
  u32 w[BYTES < 4 ? 1 : BYTES / 4];
};

#ifdef ROBOCACHE_SIM

template <int BYTES> DEVICE Words<BYTES> load_once(const char *p) {
  Words<BYTES> r = {};
  sim_aligned(p, BYTES);
  __builtin_memcpy(r.w, p, BYTES);
  return r;
}
template <int BYTES> DEVICE Words<BYTES> load_shared(const char *p) { return load_once<BYTES>(p); }
template <int BYTES> DEVICE void store_once(char *p, const Words<BYTES> &r) {
  sim_aligned(p, BYTES);
  __builtin_memcpy(p, r.w, BYTES);
}
template <int BYTES> DEVICE void store_shared(char *p, const Words<BYTES> &r) {
  sim_aligned(p, BYTES);
  __builtin_memcpy(p, r.w, BYTES);
}
template <int BYTES> DEVICE void copy_async(void *shared, const void *global) { sim_copy_async(shared, global, BYTES); }
DEVICE void copy_async_wait() { sim_copy_wait(); }
DEVICE void wait_for_previous_grid() {}
DEVICE void let_next_grid_start() {}

#else

// load_once reads memory that no one writes while the kernel runs.
template <int BYTES> DEVICE Words<BYTES> load_once(const char *p) {
  Words<BYTES> r;
  if constexpr (BYTES == 16) asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3]) : "l"(p));
  else if constexpr (BYTES == 8) asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(r.w[0]), "=r"(r.w[1]) : "l"(p));
  else if constexpr (BYTES == 4) asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(r.w[0]) : "l"(p));
  else if constexpr (BYTES == 2) {
    u16 h;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(h) : "l"(p));
    r.w[0] = h;
  } else {
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(r.w[0]) : "l"(p));
  }
  return r;
}

// load_shared reads through a plain pointer; where that is known to be shared memory the compiler says so.
template <int BYTES> DEVICE Words<BYTES> load_shared(const char *p) {
  Words<BYTES> r;
  if constexpr (BYTES == 16) {
    uint4 v = *(const uint4 *)p;
    r.w[0] = v.x, r.w[1] = v.y, r.w[2] = v.z, r.w[3] = v.w;
  } else if constexpr (BYTES == 8) {
    uint2 v = *(const uint2 *)p;
    r.w[0] = v.x, r.w[1] = v.y;
  } else if constexpr (BYTES == 4) r.w[0] = *(const u32 *)p;
  else if constexpr (BYTES == 2) r.w[0] = *(const u16 *)p;
  else r.w[0] = *(const u8 *)p;
  return r;
}

template <int BYTES> DEVICE void store_shared(char *p, const Words<BYTES> &r) {
  if constexpr (BYTES == 16) *(uint4 *)p = make_uint4(r.w[0], r.w[1], r.w[2], r.w[3]);
  else if constexpr (BYTES == 8) *(uint2 *)p = make_uint2(r.w[0], r.w[1]);
  else if constexpr (BYTES == 4) *(u32 *)p = r.w[0];
  else if constexpr (BYTES == 2) *(u16 *)p = (u16)r.w[0];
  else *(u8 *)p = (u8)r.w[0];
}

// store_once writes what this kernel does not read again: it is the first to leave the caches.
template <int BYTES> DEVICE void store_once(char *p, const Words<BYTES> &r) {
  if constexpr (BYTES == 16) asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(r.w[0]), "r"(r.w[1]), "r"(r.w[2]), "r"(r.w[3]) : "memory");
  else if constexpr (BYTES == 8) asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(r.w[0]), "r"(r.w[1]) : "memory");
  else if constexpr (BYTES == 4) asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(r.w[0]) : "memory");
  else if constexpr (BYTES == 2) asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(p), "h"((u16)r.w[0]) : "memory");
  else asm volatile("st.global.cs.u8 [%0], %1;" ::"l"(p), "r"(r.w[0]) : "memory");
}

DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// copy_async copies 4, 8 or 16 bytes from global to shared memory without registers; both ends are aligned to as many.
template <int BYTES> DEVICE void copy_async(void *shared, const void *global) {
  if constexpr (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(shared)), "l"(global), "n"(BYTES) : "memory");
}
// copy_async_wait waits for this thread's copies; a barrier makes them everyone's.
DEVICE void copy_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A kernel that was launched early runs beside the one before it: it must not touch memory before this.
DEVICE void wait_for_previous_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void let_next_grid_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif

// Near is an address in shared memory: 32 bits where that is one.
#ifdef ROBOCACHE_SIM
typedef char *Near;
DEVICE Near near_of(char *p) { return p; }
template <int BYTES> DEVICE Words<BYTES> load_near(Near p) { return load_shared<BYTES>(p); }
template <int BYTES> DEVICE void store_near(Near p, const Words<BYTES> &r) { store_shared<BYTES>(p, r); }
#else
typedef u32 Near;
DEVICE Near near_of(char *p) { return shared_address(p); }
template <int BYTES> DEVICE Words<BYTES> load_near(Near p) {
  Words<BYTES> r;
  if constexpr (BYTES == 16) asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3]) : "r"(p));
  else if constexpr (BYTES == 8) asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(r.w[0]), "=r"(r.w[1]) : "r"(p));
  else if constexpr (BYTES == 4) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(r.w[0]) : "r"(p));
  else if constexpr (BYTES == 2) {
    u16 h;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(h) : "r"(p));
    r.w[0] = h;
  } else {
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(r.w[0]) : "r"(p));
  }
  return r;
}
template <int BYTES> DEVICE void store_near(Near p, const Words<BYTES> &r) {
  if constexpr (BYTES == 16) asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(p), "r"(r.w[0]), "r"(r.w[1]), "r"(r.w[2]), "r"(r.w[3]) : "memory");
  else if constexpr (BYTES == 8) asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(p), "r"(r.w[0]), "r"(r.w[1]) : "memory");
  else if constexpr (BYTES == 4) asm volatile("st.shared.u32 [%0], %1;" ::"r"(p), "r"(r.w[0]) : "memory");
  else if constexpr (BYTES == 2) asm volatile("st.shared.u16 [%0], %1;" ::"r"(p), "h"((u16)r.w[0]) : "memory");
  else asm volatile("st.shared.u8 [%0], %1;" ::"r"(p), "r"(r.w[0]) : "memory");
}
#endif

// stage copies n bytes from global to shared memory by all threads: 16 at a time where both ends allow, never outside
// [from, from+n). shared must be 16-aligned plus (from & 15): staged_offset. The caller waits and passes a barrier.
DEVICE i32 staged_offset(const void *from) { return (i32)((u64)from & 15); }
DEVICE void stage(char *shared, const char *from, i32 n, i32 thread, i32 threads) {
  i32 head = min(n, (16 - staged_offset(from)) & 15);
  i32 body = (n - head) & ~15;
  for (i32 i = thread * 16; i < body; i += threads * 16) copy_async<16>(shared + head + i, from + head + i);
  if (thread < head) shared[thread] = from[thread];
  i32 tail = head + body + thread;
  if (tail < n) shared[tail] = from[tail];
}

// unstage is the way back: result = staged_offset(to) beyond a 16-aligned place of shared memory.
DEVICE void unstage(char *to, const char *result, i32 n, i32 thread, i32 threads) {
  i32 head = min(n, (16 - staged_offset(to)) & 15);
  i32 body = (n - head) & ~15;
  for (i32 i = thread * 16; i < body; i += threads * 16) store_once<16>(to + head + i, load_shared<16>(result + head + i));
  if (thread < head) to[thread] = result[thread];
  i32 tail = head + body + thread;
  if (tail < n) to[tail] = result[tail];
}

// ---- the copy engine (sm_90) ----

// One thread asks for whole blocks; a word in shared memory counts the bytes that came. Both ends and the size are multiples of 16.
#if !defined(ROBOCACHE_SIM) && __CUDA_ARCH__ >= 900

const bool kBulk = true;

// bulk_init comes before a barrier that all threads pass.
DEVICE void bulk_init(u64 *word) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(word)) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void bulk_expect(u64 *word, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(word)), "r"(bytes) : "memory");
}
DEVICE void bulk_copy(char *shared, const char *global, u32 bytes, u64 *word) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(word)) : "memory");
}
// bulk_wait waits for the copies of a round; rounds are numbered 0, 1, 0, 1 …
DEVICE void bulk_wait(u64 *word, u32 round) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n"
               "}" ::"r"(shared_address(word)), "r"(round) : "memory");
}

// bulk_store sends what all threads have written, once a barrier has come: each of them says bulk_written before that. bulk_stored waits until
// the shared memory may be written again.
DEVICE void bulk_written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void bulk_store(char *global, const char *shared, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared_address(shared)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
DEVICE void bulk_stored() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
DEVICE void bulk_finished() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

#else

const bool kBulk = false;
DEVICE void bulk_written() {}
DEVICE void bulk_store(char *, const char *, u32) {}
DEVICE void bulk_stored() {}
DEVICE void bulk_finished() {}
DEVICE void bulk_init(u64 *) {}
DEVICE void bulk_expect(u64 *, u32) {}
DEVICE void bulk_copy(char *, const char *, u32, u64 *) {}
DEVICE void bulk_wait(u64 *, u32) {}

#endif

// ---- times ----

// Seconds become nanoseconds by rint(t·1e9).
DEVICE i64 seconds_ns(double t) { return __double2ll_rn(__dmul_rn(t, 1e9)); }

DEVICE i64 load_ns(const char *p, u8 t) {
  if (t == kI64) return *(const i64 *)p;
  if (t == kF64) return seconds_ns(*(const double *)p);
  return seconds_ns((double)*(const float *)p);
}

// add_counts adds what the threads of a warp counted; all of them come here.
DEVICE void add_counts(u64 *counts, const Casts &c) {
  u32 a = __reduce_add_sync(0xffffffffu, c.overflow), b = __reduce_add_sync(0xffffffffu, c.nan);
  if ((threadIdx.x & 31) == 0) {
    if (a) atomicAdd(counts, (u64)a);
    if (b) atomicAdd(counts + 1, (u64)b);
  }
}
