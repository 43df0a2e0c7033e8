// The equivalent of src/ptx.cuh in plain C++.
#pragma once

DEVICE u16 float_bf16(float x) {
  u32 b = bits(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return 0x7fff; // rounding would turn some NaN into infinity
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
  if (b >= 0x477ff000u) return sign | 0x7c00; // 65520 is half way to the next power of two
  if (b >= 0x38800000u) return sign | (u16)((b + 0xfffu + (b >> 13 & 1) - (112u << 23)) >> 13);
  // subnormal: the addition does the rounding
  return sign | (u16)(bits(real(b) + 0.5f) - 0x3f000000u);
}
DEVICE u32 pack_bf16(float low, float high) {
  return float_bf16(low) | (u32)float_bf16(high) << 16;
}
DEVICE u32 pack_f16(float low, float high) { return float_f16(low) | (u32)float_f16(high) << 16; }

DEVICE i32 dot2_low(u32 w, u32 v, i32 sum) {
  return sum + (i16)w * (i32)(v & 255) + (i16)(w >> 16) * (i32)(v >> 8 & 255);
}
DEVICE i32 dot2_high(u32 w, u32 v, i32 sum) { return dot2_low(w, v >> 16, sum); }
DEVICE i32 dot2_high_signed(u32 w, u32 v, i32 sum) {
  return sum + (i16)w * (i32)(signed char)(v >> 16) + (i16)(w >> 16) * (i32)(signed char)(v >> 24);
}

DEVICE u32 pack_s16(i32 low, i32 high) {
  auto half = [](i32 v) { return (u32)(u16)(v < -32768 ? -32768 : v > 32767 ? 32767 : v); };
  return half(low) | half(high) << 16;
}
DEVICE u32 pack_u8(i32 low, i32 high) {
  auto byte = [](i32 v) { return (u32)(v < 0 ? 0 : v > 255 ? 255 : v); };
  return byte(low) | byte(high) << 8;
}

template <int BYTES>
DEVICE Words<BYTES> load_once(const char *p) {
  Words<BYTES> r = {};
  sim_aligned(p, BYTES);
  __builtin_memcpy(r.w, p, BYTES);
  return r;
}
template <int BYTES>
DEVICE Words<BYTES> load_shared(const char *p) {
  return load_once<BYTES>(p);
}
template <int BYTES>
DEVICE void store_once(char *p, const Words<BYTES> &r) {
  sim_aligned(p, BYTES);
  __builtin_memcpy(p, r.w, BYTES);
}
template <int BYTES>
DEVICE void store_shared(char *p, const Words<BYTES> &r) {
  sim_aligned(p, BYTES);
  __builtin_memcpy(p, r.w, BYTES);
}
template <int BYTES>
DEVICE void copy_async(void *shared, const void *global) {
  sim_copy_async(shared, global, BYTES);
}
DEVICE void copy_async_wait() { sim_copy_wait(); }
DEVICE void wait_for_previous_grid() {}
DEVICE void let_next_grid_start() {}

// There is no copy engine.
const bool kBulk = false;
DEVICE void bulk_written() {}
DEVICE void bulk_store(char *, const char *, u32) {}
DEVICE void bulk_stored() {}
DEVICE void bulk_finished() {}
DEVICE void bulk_init(u64 *) {}
DEVICE void bulk_expect(u64 *, u32) {}
DEVICE void bulk_copy(char *, const char *, u32, u64 *) {}
DEVICE void bulk_wait(u64 *, u32) {}

DEVICE float about(float x, float y) { return x / y; }
DEVICE i64 load_timestamp(const char *p) { return *(const i64 *)p; }
DEVICE void known(const void *) {}
