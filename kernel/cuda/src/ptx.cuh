// PTX and copies that CUDA C has no name for: conversions, memory accesses of any width, the copy
// engine. The simulator has an equivalent of this file in plain C++.
#pragma once

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

// Adds to sum the products of two signed halves of w and the two low, or high, unsigned bytes of v.
DEVICE i32 dot2_low(u32 w, u32 v, i32 sum) {
  asm("dp2a.lo.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w), "r"(v));
  return sum;
}
DEVICE i32 dot2_high(u32 w, u32 v, i32 sum) {
  asm("dp2a.hi.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w), "r"(v));
  return sum;
}

// The same with signed bytes.
DEVICE i32 dot2_high_signed(u32 w, u32 v, i32 sum) {
  asm("dp2a.hi.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w), "r"(v));
  return sum;
}

// Packs two integers into the halves, or bytes, of a word, with saturation.
DEVICE u32 pack_s16(i32 low, i32 high) {
  u32 r;
  asm("cvt.pack.sat.s16.s32 %0, %1, %2;" : "=r"(r) : "r"(high), "r"(low));
  return r;
}
DEVICE u32 pack_u8(i32 low, i32 high) {
  u32 r;
  asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(high), "r"(low), "r"(0));
  return r;
}

// load_once reads memory that nothing writes while the kernel runs.
template <int BYTES>
DEVICE Words<BYTES> load_once(const char *p) {
  Words<BYTES> r;
  if constexpr (BYTES == 16)
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
        : "l"(p));
  else if constexpr (BYTES == 8)
    asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(r.w[0]), "=r"(r.w[1]) : "l"(p));
  else if constexpr (BYTES == 4) asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(r.w[0]) : "l"(p));
  else if constexpr (BYTES == 2) {
    u16 h;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(h) : "l"(p));
    r.w[0] = h;
  } else asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(r.w[0]) : "l"(p));
  return r;
}

// store_once writes memory that this kernel does not read again. It is evicted first from the
// caches.
template <int BYTES>
DEVICE void store_once(char *p, const Words<BYTES> &r) {
  if constexpr (BYTES == 16)
    asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(r.w[0]), "r"(r.w[1]),
        "r"(r.w[2]), "r"(r.w[3])
        : "memory");
  else if constexpr (BYTES == 8)
    asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(r.w[0]), "r"(r.w[1])
        : "memory");
  else if constexpr (BYTES == 4)
    asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(r.w[0]) : "memory");
  else if constexpr (BYTES == 2)
    asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(p), "h"((u16)r.w[0]) : "memory");
  else asm volatile("st.global.cs.u8 [%0], %1;" ::"l"(p), "r"(r.w[0]) : "memory");
}

// load_shared reads through a plain pointer. If the pointer is known to be shared memory, the
// compiler uses that.
template <int BYTES>
DEVICE Words<BYTES> load_shared(const char *p) {
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

template <int BYTES>
DEVICE void store_shared(char *p, const Words<BYTES> &r) {
  if constexpr (BYTES == 16) *(uint4 *)p = make_uint4(r.w[0], r.w[1], r.w[2], r.w[3]);
  else if constexpr (BYTES == 8) *(uint2 *)p = make_uint2(r.w[0], r.w[1]);
  else if constexpr (BYTES == 4) *(u32 *)p = r.w[0];
  else if constexpr (BYTES == 2) *(u16 *)p = (u16)r.w[0];
  else *(u8 *)p = (u8)r.w[0];
}

DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// copy_async copies 4, 8 or 16 bytes from global to shared memory without registers. Both addresses
// must be aligned to this size.
template <int BYTES>
DEVICE void copy_async(void *shared, const void *global) {
  if constexpr (BYTES == 16)
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global)
        : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(shared)),
        "l"(global), "n"(BYTES)
        : "memory");
}
// copy_async_wait waits for this thread's copies. After a barrier, all threads can read them.
DEVICE void copy_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// wait_for_previous_grid waits for the previous kernel. A kernel that was launched early runs at
// the same time as the previous one, and must not access memory before this call.
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

// ---- the copy engine (sm_90) ----

// One thread requests whole blocks; a word in shared memory counts the bytes that have arrived.
// Both addresses and the size are multiples of 16.
#if __CUDA_ARCH__ >= 900

const bool kBulk = true;

// bulk_init must be called before a barrier that all threads pass.
DEVICE void bulk_init(u64 *word) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(word)) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void bulk_expect(u64 *word, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(word)),
      "r"(bytes)
      : "memory");
}
DEVICE void bulk_copy(char *shared, const char *global, u32 bytes, u64 *word) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(word))
      : "memory");
}
// bulk_wait waits for the copies of a round. Rounds are numbered 0, 1, 0, 1 …
DEVICE void bulk_wait(u64 *word, u32 round) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(shared_address(word)),
      "r"(round)
      : "memory");
}

// bulk_store writes the data of all threads to global memory. Each thread must call bulk_written
// and then pass a barrier before it. bulk_stored waits until the shared memory can be written
// again.
DEVICE void bulk_written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void bulk_store(char *global, const char *shared, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
      "r"(shared_address(shared)), "r"(bytes)
      : "memory");
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

// load_timestamp is never moved before the wait for the previous grid. The compiler can move other
// reads of constant memory.
DEVICE i64 load_timestamp(const char *p) {
  i64 t;
  asm volatile("ld.global.nc.s64 %0, [%1];" : "=l"(t) : "l"(p));
  return t;
}

DEVICE float about(float x, float y) { return __fdividef(x, y); }

// known forces the compiler to compute a value here, and not later.
DEVICE void known(const void *p) { asm volatile("" ::"l"(p)); }
