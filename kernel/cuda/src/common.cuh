// Definitions for all kernels: types, conversions that equal the reference to the bit, memory
// accesses of any width, and asynchronous copies. No CUDA header is used.
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
enum DType : u8 {
  kBool = 1,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64
};

#define DEVICE static __device__ __forceinline__

// COLD marks large functions that run rarely. Each image has one copy of them.
#define COLD static __device__ __noinline__

DEVICE i32 size_of(u8 t) {
  return t >= kF16  ? (t == kF64      ? 8
                          : t == kF32 ? 4
                                      : 2)
         : t >= kU8 ? 1 << (t - kU8)
         : t >= kI8 ? 1 << (t - kI8)
                    : 1;
}

DEVICE u32 bits(float x) { return __float_as_uint(x); }
DEVICE float real(u32 x) { return __uint_as_float(x); }
DEVICE u64 bits(double x) { return (u64)__double_as_longlong(x); }
DEVICE double real(u64 x) { return __longlong_as_double((i64)x); }

// ---- half precision ----

DEVICE float bf16_float(u16 h) { return real((u32)h << 16); }
DEVICE float bf16_low(u32 pair) { return real(pair << 16); }
DEVICE float bf16_high(u32 pair) { return real(pair & 0xffff0000u); }

// Words is BYTES bytes in registers. 16, 8, 4, 2 or 1 bytes move at once.
template <int BYTES>
struct Words {
  u32 w[BYTES < 4 ? 1 : BYTES / 4];
};

// ptx.cuh contains everything that needs PTX. The simulator has an equivalent in plain C++.
#ifdef ROBOCACHE_SIM
#include SIM_PTX
#else
#include "ptx.cuh"
#endif

DEVICE float f16_low(u32 pair) { return f16_float((u16)pair); }
DEVICE float f16_high(u32 pair) { return f16_float((u16)(pair >> 16)); }

// odd_float rounds to float32. Inexact values become the neighbor with an odd significand. Rounding
// the result to a narrower type then equals rounding x once.
DEVICE float odd_float(double x) {
  float f = __double2float_rz(x);
  return (double)f == x || x != x ? f : real(bits(f) | 1);
}

// ---- any type ----

// load_float reads a value whose computing type is float32. Wide integers are rounded once.
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

// Casts counts casts that changed a value by more than rounding (kernel.K11). Each thread has its
// own counts, which are added at its end.
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
  double hi = real((u64)(1023 + width - (is_signed ? 1 : 0)) << 52),
         lo = is_signed ? -hi : 0; // powers of two
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

// stage copies n bytes from global to shared memory with all threads, 16 bytes at a time if both
// ends allow it. It never reads outside [from, from+n). shared must be 16-aligned plus
// staged_offset (from & 15). The caller must wait and pass a barrier.
DEVICE i32 staged_offset(const void *from) { return (i32)((u64)from & 15); }
DEVICE void stage(char *shared, const char *from, i32 n, i32 thread, i32 threads) {
  i32 head = min(n, (16 - staged_offset(from)) & 15);
  i32 body = (n - head) & ~15;
  for (i32 i = thread * 16; i < body; i += threads * 16)
    copy_async<16>(shared + head + i, from + head + i);
  if (thread < head) shared[thread] = from[thread];
  i32 tail = head + body + thread;
  if (tail < n) shared[tail] = from[tail];
}

// unstage copies from shared to global memory. result must be staged_offset(to) beyond a 16-aligned
// address.
DEVICE void unstage(char *to, const char *result, i32 n, i32 thread, i32 threads) {
  i32 head = min(n, (16 - staged_offset(to)) & 15);
  i32 body = (n - head) & ~15;
  for (i32 i = thread * 16; i < body; i += threads * 16)
    store_once<16>(to + head + i, load_shared<16>(result + head + i));
  if (thread < head) to[thread] = result[thread];
  i32 tail = head + body + thread;
  if (tail < n) to[tail] = result[tail];
}

// ---- times ----

// Seconds are converted to nanoseconds by rint(t·1e9).
DEVICE i64 seconds_ns(double t) { return __double2ll_rn(__dmul_rn(t, 1e9)); }

DEVICE i64 load_ns(const char *p, u8 t) {
  if (t == kI64) return *(const i64 *)p;
  if (t == kF64) return seconds_ns(*(const double *)p);
  return seconds_ns((double)*(const float *)p);
}

// add_counts adds the counts of all threads in a warp. All of them must call it.
DEVICE void add_counts(u64 *counts, const Casts &c) {
  u32 a = __reduce_add_sync(0xffffffffu, c.overflow), b = __reduce_add_sync(0xffffffffu, c.nan);
  if ((threadIdx.x & 31) == 0) {
    if (a) atomicAdd(counts, (u64)a);
    if (b) atomicAdd(counts + 1, (u64)b);
  }
}
