// The parts of CUDA C that C++ lacks, for a host. Kernels of kernel/cuda/src compile against this
// file unchanged (package sim). One block runs at a time, and its threads are fibers; see sim.cpp.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>

#define ROBOCACHE_SIM 1
#define SIM_PTX "ptx.h"
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
// sim_linux.go replaces __global__ and __shared__: it generates trampolines for the first, and
// static or dynamic memory for the second.

// ---- functions of the scheduler ----

struct sim_index {
  unsigned x, y, z;
};
extern "C" {
extern sim_index threadIdx, blockIdx, blockDim, gridDim;
[[noreturn]] void sim_fail(const char *format, ...);
void *sim_dynamic();
int sim_barrier(int line, int kind, int value); // kind 0 plain, 1 count, 2 and, 3 or
// the kinds are listed below
uint64_t sim_warp(
    int kind, unsigned mask, uint64_t value, int argument, int width, unsigned *other);
// cp.async: the memory changes when the thread waits
void sim_copy_async(void *shared, const void *global, unsigned n);
void sim_copy_wait();
// an access that does not race with others of its kind
void sim_atomic(const void *p, unsigned size);
}
static const int warpSize = 32;
typedef sim_index dim3;

enum {
  sim_sync,
  sim_shfl,
  sim_up,
  sim_down,
  sim_xor,
  sim_ballot,
  sim_match,
  sim_match_all,
  sim_add,
  sim_min,
  sim_max,
  sim_imin,
  sim_imax,
  sim_and,
  sim_or,
  sim_xor_all
};

#define __syncthreads() ((void)sim_barrier(__LINE__, 0, 0))
#define __syncthreads_count(v) sim_barrier(__LINE__, 1, !!(v))
#define __syncthreads_and(v) sim_barrier(__LINE__, 2, !!(v))
#define __syncthreads_or(v) sim_barrier(__LINE__, 3, !!(v))

#define SIM static inline __attribute__((unused))

// sim_aligned checks an address for an instruction that needs alignment.
SIM void sim_aligned(const void *p, unsigned n) {
  if ((uintptr_t)p % n)
    sim_fail("an access of %u bytes at %p, which is not aligned to as many", n, p);
}

SIM void __syncwarp(unsigned mask = 0xffffffffu) { sim_warp(sim_sync, mask, 0, 0, 32, 0); }
template <class T>
uint64_t sim_word(T v) {
  static_assert(sizeof(T) <= 8, "at most 8 bytes");
  uint64_t w = 0;
  memcpy(&w, &v, sizeof v);
  return w;
}
template <class T>
T sim_value(uint64_t w) {
  T v;
  memcpy(&v, &w, sizeof v);
  return v;
}
template <class T>
T __shfl_sync(unsigned m, T v, int lane, int width = 32) {
  return sim_value<T>(sim_warp(sim_shfl, m, sim_word(v), lane, width, 0));
}
template <class T>
T __shfl_up_sync(unsigned m, T v, unsigned d, int width = 32) {
  return sim_value<T>(sim_warp(sim_up, m, sim_word(v), d, width, 0));
}
template <class T>
T __shfl_down_sync(unsigned m, T v, unsigned d, int width = 32) {
  return sim_value<T>(sim_warp(sim_down, m, sim_word(v), d, width, 0));
}
template <class T>
T __shfl_xor_sync(unsigned m, T v, int d, int width = 32) {
  return sim_value<T>(sim_warp(sim_xor, m, sim_word(v), d, width, 0));
}
SIM unsigned __ballot_sync(unsigned m, int p) {
  return (unsigned)sim_warp(sim_ballot, m, p != 0, 0, 32, 0);
}
SIM int __any_sync(unsigned m, int p) { return __ballot_sync(m, p) != 0; }
SIM int __all_sync(unsigned m, int p) { return __ballot_sync(m, !p) == 0; }
template <class T>
unsigned __match_any_sync(unsigned m, T v) {
  return (unsigned)sim_warp(sim_match, m, sim_word(v), 0, 32, 0);
}
template <class T>
unsigned __match_all_sync(unsigned m, T v, int *same) {
  unsigned r = (unsigned)sim_warp(sim_match_all, m, sim_word(v), 0, 32, 0);
  *same = r != 0;
  return r;
}
SIM unsigned __reduce_add_sync(unsigned m, unsigned v) {
  return (unsigned)sim_warp(sim_add, m, v, 0, 32, 0);
}
SIM unsigned __reduce_min_sync(unsigned m, unsigned v) {
  return (unsigned)sim_warp(sim_min, m, v, 0, 32, 0);
}
SIM unsigned __reduce_max_sync(unsigned m, unsigned v) {
  return (unsigned)sim_warp(sim_max, m, v, 0, 32, 0);
}
SIM int __reduce_add_sync(unsigned m, int v) {
  return (int)sim_warp(sim_add, m, (unsigned)v, 0, 32, 0);
}
SIM int __reduce_min_sync(unsigned m, int v) {
  return (int)sim_warp(sim_imin, m, (unsigned)v, 0, 32, 0);
}
SIM int __reduce_max_sync(unsigned m, int v) {
  return (int)sim_warp(sim_imax, m, (unsigned)v, 0, 32, 0);
}
SIM unsigned __reduce_and_sync(unsigned m, unsigned v) {
  return (unsigned)sim_warp(sim_and, m, v, 0, 32, 0);
}
SIM unsigned __reduce_or_sync(unsigned m, unsigned v) {
  return (unsigned)sim_warp(sim_or, m, v, 0, 32, 0);
}
SIM unsigned __reduce_xor_sync(unsigned m, unsigned v) {
  return (unsigned)sim_warp(sim_xor_all, m, v, 0, 32, 0);
}
// the thread's own lane is the only one that is always active
SIM unsigned __activemask() { return 1u << (threadIdx.x & 31); }
SIM void __threadfence() {}
SIM void __threadfence_block() {}
SIM void __threadfence_system() {}
SIM void __nanosleep(unsigned) {}
SIM long long clock64() { return 0; }
SIM long long clock() { return 0; }
[[noreturn]] SIM void __trap() { sim_fail("__trap"); }

// ---- vectors ----

#define SIM_VECTORS(name, T, A1, A2, A4)                          \
  struct __attribute__((aligned(A1))) name##1 { T x; };           \
  struct __attribute__((aligned(A2))) name##2 { T x, y; };        \
  struct name##3 { T x, y, z; };                                  \
  struct __attribute__((aligned(A4))) name##4 { T x, y, z, w; };  \
  SIM name##1 make_##name##1(T x) { return {x}; }                 \
  SIM name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  SIM name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  SIM name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SIM_VECTORS(char, signed char, 1, 2, 4)
SIM_VECTORS(uchar, unsigned char, 1, 2, 4)
SIM_VECTORS(short, short, 2, 4, 8)
SIM_VECTORS(ushort, unsigned short, 2, 4, 8)
SIM_VECTORS(int, int, 4, 8, 16)
SIM_VECTORS(uint, unsigned, 4, 8, 16)
SIM_VECTORS(float, float, 4, 8, 16)
SIM_VECTORS(longlong, long long, 8, 16, 16)
SIM_VECTORS(ulonglong, unsigned long long, 8, 16, 16)
SIM_VECTORS(double, double, 8, 16, 16)

// ---- loads and stores ----

#define SIM_LOAD(name)                 \
  template <class T>                   \
  __forceinline__ T name(const T *p) { \
    return *p;                         \
  }
#define SIM_STORE(name)                                                       \
  template <class T>                                                          \
  __forceinline__ void name(T *p, typename std::enable_if<true, T>::type v) { \
    *p = v;                                                                   \
  }
SIM_LOAD(__ldg)
SIM_LOAD(__ldcs) SIM_LOAD(__ldcg) SIM_LOAD(__ldca) SIM_LOAD(__ldlu) SIM_LOAD(__ldcv)
    SIM_STORE(__stcs) SIM_STORE(__stcg) SIM_STORE(__stwb) SIM_STORE(__stwt)
// ---- atomics ----

#define SIM_ATOMIC(name, expression)                       \
  template <class T>                                       \
  __attribute__((no_sanitize("thread"), noinline)) T name( \
      T *p, typename std::enable_if<true, T>::type v) {    \
    sim_atomic(p, sizeof(T));                              \
    T old = *p;                                            \
    *p = expression;                                       \
    return old;                                            \
  }
        SIM_ATOMIC(atomicAdd, old + v) SIM_ATOMIC(atomicSub, old - v) SIM_ATOMIC(atomicExch, v)
            SIM_ATOMIC(atomicMin, v < old ? v : old) SIM_ATOMIC(atomicMax, v > old ? v : old)
                SIM_ATOMIC(atomicAnd, old &v) SIM_ATOMIC(atomicOr, old | v)
                    SIM_ATOMIC(atomicXor, old ^ v) SIM_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
                        SIM_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1) template <class T>
                        __attribute__((no_sanitize("thread"), noinline)) T
    atomicCAS(T *p, typename std::enable_if<true, T>::type was,
        typename std::enable_if<true, T>::type v) {
  sim_atomic(p, sizeof(T));
  T old = *p;
  if (old == was) *p = v;
  return old;
}
template <>
__attribute__((no_sanitize("thread"), noinline)) inline float4 atomicAdd<float4>(
    float4 *p, float4 v) {
  sim_aligned(p, 16);
  sim_atomic(p, 16);
  float4 old = *p;
  *p = {old.x + v.x, old.y + v.y, old.z + v.z, old.w + v.w};
  return old;
}
template <>
__attribute__((no_sanitize("thread"), noinline)) inline float2 atomicAdd<float2>(
    float2 *p, float2 v) {
  sim_aligned(p, 8);
  sim_atomic(p, 8);
  float2 old = *p;
  *p = {old.x + v.x, old.y + v.y};
  return old;
}

// ---- bits ----

#define SIM_CAST(name, T, F) \
  SIM T name(F v) { return sim_value<T>(sim_word(v)); }
SIM_CAST(__float_as_uint, unsigned, float)
SIM_CAST(__float_as_int, int, float)
SIM_CAST(__uint_as_float, float, unsigned)
SIM_CAST(__int_as_float, float, int)
SIM_CAST(__double_as_longlong, long long, double)
SIM_CAST(__longlong_as_double, double, long long)
SIM int __double2hiint(double v) { return (int)(__double_as_longlong(v) >> 32); }
SIM int __double2loint(double v) { return (int)__double_as_longlong(v); }
SIM double __hiloint2double(int hi, int lo) {
  return __longlong_as_double((long long)((uint64_t)(unsigned)hi << 32 | (unsigned)lo));
}
SIM int __clz(unsigned v) { return v ? __builtin_clz(v) : 32; }
SIM int __clzll(unsigned long long v) { return v ? __builtin_clzll(v) : 64; }
SIM int __ffs(int v) { return __builtin_ffs(v); }
SIM int __ffsll(long long v) { return __builtin_ffsll(v); }
SIM int __popc(unsigned v) { return __builtin_popcount(v); }
SIM int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
SIM unsigned __brev(unsigned v) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (v >> i & 1) << (31 - i);
  return r;
}
SIM unsigned long long __brevll(unsigned long long v) {
  return (unsigned long long)__brev((unsigned)v) << 32 | __brev((unsigned)(v >> 32));
}
SIM unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  uint64_t both = (uint64_t)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    unsigned n = s >> (4 * i), v = (unsigned)(both >> (8 * (n & 7))) & 255;
    r |= (n & 8 ? (v & 128 ? 255u : 0u) : v) << (8 * i);
  }
  return r;
}
SIM unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
SIM int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
SIM unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
SIM long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
SIM unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) {
  return (unsigned)(((uint64_t)hi << 32 | lo) << (s & 31) >> 32);
}
SIM unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) {
  return (unsigned)(((uint64_t)hi << 32 | lo) >> (s & 31));
}
SIM uint64_t __cvta_generic_to_shared(const void *p) { return (uint64_t)p; }

// ---- arithmetic: IEEE, never contracted (-ffp-contract=off) ----

SIM float __fadd_rn(float a, float b) { return a + b; }
SIM float __fsub_rn(float a, float b) { return a - b; }
SIM float __fmul_rn(float a, float b) { return a * b; }
SIM float __fdiv_rn(float a, float b) { return a / b; }
SIM float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
SIM float __fsqrt_rn(float a) { return sqrtf(a); }
SIM float __frcp_rn(float a) { return 1.0f / a; }
SIM double __dadd_rn(double a, double b) { return a + b; }
SIM double __dsub_rn(double a, double b) { return a - b; }
SIM double __dmul_rn(double a, double b) { return a * b; }
SIM double __ddiv_rn(double a, double b) { return a / b; }
SIM double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
SIM double __dsqrt_rn(double a) { return sqrt(a); }
SIM double __drcp_rn(double a) { return 1.0 / a; }
SIM float __saturatef(float v) { return v > 0 ? (v < 1 ? v : 1) : 0; }
SIM double rsqrt(double v) { return 1 / sqrt(v); }
SIM float rsqrtf(float v) { return 1 / sqrtf(v); }

#define SIM_MINMAX(T, A, B)                                 \
  SIM T min(A a, B b) { return (T)a < (T)b ? (T)a : (T)b; } \
  SIM T max(A a, B b) { return (T)a > (T)b ? (T)a : (T)b; }
SIM_MINMAX(int, int, int)
SIM_MINMAX(unsigned, unsigned, unsigned)
SIM_MINMAX(unsigned, int, unsigned)
SIM_MINMAX(unsigned, unsigned, int)
SIM_MINMAX(long, long, long)
SIM_MINMAX(unsigned long, unsigned long, unsigned long)
SIM_MINMAX(long long, long long, long long)
SIM_MINMAX(unsigned long long, unsigned long long, unsigned long long)
SIM_MINMAX(unsigned long long, long long, unsigned long long)
SIM_MINMAX(unsigned long long, unsigned long long, long long)
SIM float min(float a, float b) { return fminf(a, b); }
SIM float max(float a, float b) { return fmaxf(a, b); }
SIM double min(double a, double b) { return fmin(a, b); }
SIM double max(double a, double b) { return fmax(a, b); }
SIM double min(float a, double b) { return fmin(a, b); }
SIM double min(double a, float b) { return fmin(a, b); }
SIM double max(float a, double b) { return fmax(a, b); }
SIM double max(double a, float b) { return fmax(a, b); }
// Conversions to integers saturate. NaN becomes 0, or the lowest value for 64 bits.
template <class I, class F>
I sim_int(F v) {
  if (v != v) return sizeof(I) == 8 ? (I)(1ull << 63) : 0;
  const bool s = std::is_signed<I>::value;
  const F top = ldexp((F)1, (int)sizeof(I) * 8 - s);
  if (v >= top) return s ? (I)((~0ull) >> (65 - sizeof(I) * 8)) : (I)~0ull;
  if (v < (s ? -top : (F)0)) return s ? (I)(1ull << (sizeof(I) * 8 - 1)) : 0;
  return (I)v;
}
#define SIM_TO_INT(from, F, to, I)                                    \
  SIM I __##from##2##to##_rn(F v) { return sim_int<I, F>(rint(v)); }  \
  SIM I __##from##2##to##_rz(F v) { return sim_int<I, F>(trunc(v)); } \
  SIM I __##from##2##to##_rd(F v) { return sim_int<I, F>(floor(v)); } \
  SIM I __##from##2##to##_ru(F v) { return sim_int<I, F>(ceil(v)); }
SIM_TO_INT(float, float, int, int)
SIM_TO_INT(float, float, uint, unsigned)
SIM_TO_INT(float, float, ll, long long)
SIM_TO_INT(float, float, ull, unsigned long long)
SIM_TO_INT(double, double, int, int)
SIM_TO_INT(double, double, uint, unsigned)
SIM_TO_INT(double, double, ll, long long)
SIM_TO_INT(double, double, ull, unsigned long long)
SIM float __int2float_rn(int v) { return (float)v; }
SIM float __uint2float_rn(unsigned v) { return (float)v; }
SIM float __ll2float_rn(long long v) { return (float)v; }
SIM float __ull2float_rn(unsigned long long v) { return (float)v; }
SIM double __int2double_rn(int v) { return v; }
SIM double __uint2double_rn(unsigned v) { return v; }
SIM double __ll2double_rn(long long v) { return (double)v; }
SIM double __ull2double_rn(unsigned long long v) { return (double)v; }
SIM float __double2float_rn(double v) { return (float)v; }
SIM float __double2float_rz(double v) {
  float f = (float)v;
  return fabs((double)f) > fabs(v) ? nextafterf(f, 0) : f;
}
SIM float __double2float_rd(double v) {
  float f = (float)v;
  return (double)f > v ? nextafterf(f, -INFINITY) : f;
}
SIM float __double2float_ru(double v) {
  float f = (float)v;
  return (double)f < v ? nextafterf(f, INFINITY) : f;
}
