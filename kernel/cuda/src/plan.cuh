// From times to weights: the planner of package kernel (finder.go), with one thread per target row.
#pragma once
#include "common.cuh"

// The numbers of kernel.Mode, kernel.Edge, kernel.Kind and kernel.Clock.
enum Mode : u8 { kLinear, kNearest, kPrevious, kNext, kSlerp, kAngle, kMean };
enum Edge : u8 { kClamp, kMask, kExtrapolate, kErrorEdge };
enum Kind : u8 { kZero, kCopy, kBlend, kWindow };
enum Clock : u8 { kNanoseconds, kAsGiven };

const i64 kMaxTime = 1ll << 62;

// Times are compared as integers. Under AsGiven, the integer is made from the bits of the float64
// and has the same order.
DEVICE i64 time_key(double t) {
  i64 b = __double_as_longlong(t + 0.0); // -0 is 0
  return b ^ (i64)((u64)(b >> 63) >> 1);
}
DEVICE double time_of(i64 key) { return __longlong_as_double(key ^ (i64)((u64)(key >> 63) >> 1)); }

DEVICE i64 load_time(const char *p, u8 type, u8 clock) {
  if (clock == kNanoseconds) return load_ns(p, type);
  return time_key(type == kF64   ? *(const double *)p
                  : type == kF32 ? (double)*(const float *)p
                                 : __ll2double_rn(*(const i64 *)p));
}

// Timestamps is the timestamps of one entry. Every step-th of them is in shared memory, the last
// one of each step. step 1: all; 0: none.
struct Timestamps {
  const i64 *pivot;
  const char *times;
  i64 stride; // in bytes
  i32 n, step;
  u8 type, clock;
};

DEVICE i64 timestamp(const Timestamps &s, i32 i) {
  return s.step == 1 ? s.pivot[i] : load_time(s.times + i * s.stride, s.type, s.clock);
}

// not_after4 is not_after for timestamps that are all in shared memory. It compares three at a
// time, because each step of a search waits for the previous one.
DEVICE i32 not_after4(const i64 *timestamps, i32 n, i64 t) {
  i32 lo = 0;
#pragma unroll 1
  while (n >= 4) {
    i32 d = n >> 2;
    i32 passed = (i32)(timestamps[lo + d - 1] <= t) + (i32)(timestamps[lo + 2 * d - 1] <= t) +
                 (i32)(timestamps[lo + 3 * d - 1] <= t);
    lo += passed * d;
    n = passed == 3 ? n - 3 * d : d - 1;
  }
  i32 more = 0;
  if (n > 0) more += timestamps[lo] <= t;
  if (n > 1) more += timestamps[lo + 1] <= t;
  if (n > 2) more += timestamps[lo + 2] <= t;
  return lo + more;
}

// not_after returns the number of timestamps ≤ t.
DEVICE i32 not_after(const Timestamps &s, i64 t) {
  i32 lo = 0, hi = s.n;
  if (s.step != 0) {
    lo = not_after4(s.pivot, s.step == 1 ? s.n : (s.n + s.step - 1) / s.step, t);
    if (s.step == 1) return lo;
    hi = min((lo + 1) * s.step - 1, s.n);
    lo = min(lo * s.step, s.n);
  }
#pragma unroll 1
  while (lo < hi) {
    i32 m = (u32)(lo + hi) >> 1;
    if (load_time(s.times + m * s.stride, s.type, s.clock) <= t) lo = m + 1;
    else hi = m;
  }
  return lo;
}

// count_to is not_after as a separate function.
COLD i32 count_to(const Timestamps &s, i64 t) { return not_after(s, t); }

// before returns the number of timestamps < t.
DEVICE i32 before(const Timestamps &s, i64 t) { return count_to(s, t - 1); }

// Found is one row of a plan.
struct Found {
  i32 left, right;
  double w;
  u8 kind, valid;
};

// Way is the part of a stream's rule that the planner needs.
struct Way {
  u8 mode, edge;
  i64 max_gap, before, after; // ns
  double epsilon;             // in seconds
};

DEVICE void found_copy(Found &f, i32 k) {
  f.kind = kCopy;
  f.left = f.right = k;
}
DEVICE void found_zero(Found &f) {
  f.kind = kZero;
  f.left = f.right = 0;
  f.w = 0;
}
DEVICE void found_blend(Found &f, const Timestamps &s, const Way &way, i64 t, i32 a, i32 b) {
  f.kind = kBlend;
  f.left = a;
  f.right = b;
  i64 sa = timestamp(s, a), sb = timestamp(s, b);
  if (s.clock == kNanoseconds) f.w = __ddiv_rn(__ll2double_rn(t - sa), __ll2double_rn(sb - sa));
  else
    f.w = __ddiv_rn(__dsub_rn(time_of(t), time_of(sa)),
        __dadd_rn(__dsub_rn(time_of(sb), time_of(sa)), way.epsilon));
}

DEVICE bool too_long(const Timestamps &s, const Way &way, i64 from, i64 to) {
  if (way.max_gap == 0) return false;
  if (s.clock == kNanoseconds) return to - from > way.max_gap;
  return __dsub_rn(time_of(to), time_of(from)) > __ddiv_rn(__ll2double_rn(way.max_gap), 1e9);
}

// found_gap sets the validity of a row inside the data, and its value if the gap from … to is too
// long.
DEVICE void found_gap(Found &f, const Timestamps &s, const Way &way, i64 from, i64 to) {
  if (!too_long(s, way, from, to)) f.valid = 1;
  else if (way.edge == kMask) found_zero(f);
}

// nearer reports whether b is strictly nearer to t than a is.
DEVICE bool nearer(const Timestamps &s, i64 a, i64 t, i64 b) {
  if (s.clock == kNanoseconds) return t - a > b - t;
  return __dsub_rn(time_of(t), time_of(a)) > __dsub_rn(time_of(b), time_of(t));
}

COLD void found_outside(Found &f, const Timestamps &s, const Way &way, i64 t, bool first) {
  if (way.edge == kMask || s.n == 0) {
    found_zero(f);
    return;
  }
  found_copy(f, first ? 0 : s.n - 1);
  if (way.edge != kExtrapolate || (way.mode != kLinear && way.mode != kAngle)) return;
  i64 lo = timestamp(s, 0), hi = timestamp(s, s.n - 1);
  if (lo == hi) return;
  if (first) {
    i32 a = count_to(s, lo) - 1;
    found_blend(f, s, way, t, a, count_to(s, timestamp(s, a + 1)) - 1);
  } else {
    found_blend(f, s, way, t, before(s, hi) - 1, s.n - 1);
  }
}

// found_mean uses the window around t, which lies inside the data. k is the last timestamp ≤ t. It
// supports ns only.
COLD void found_mean(Found &f, const Timestamps &s, const Way &way, i64 t, i32 k) {
  i64 from = max(t - way.before, timestamp(s, 0)),
      to = t + min(way.after, kMaxTime - 1 - max(t, 0ll));
  i32 lo = before(s, from), hi = before(s, to);
  i64 at = timestamp(s, k);
  if (lo < hi) {
    f.kind = kWindow;
    f.left = lo;
    f.right = hi;
    if (t == at) f.valid = 1;
    else found_gap(f, s, way, at, timestamp(s, k + 1));
    return;
  }
  found_copy(f, t != at && nearer(s, at, t, timestamp(s, k + 1)) ? k + 1 : k);
  if (way.edge == kMask) found_zero(f);
}

// find_row decides the row at time t. With ALL it also supports modes that the fast kernels do not
// need.
template <bool ALL>
DEVICE Found find_row(const Timestamps &s, const Way &way, i64 t) {
  Found f = {};
  i32 k = count_to(s, t) - 1;
  if (k < 0) { // also if there are no timestamps
    found_outside(f, s, way, t, true);
    return f;
  }
  i64 a = timestamp(s, k);
  if (t != a && k == s.n - 1) {
    found_outside(f, s, way, t, false);
    return f;
  }
  if (ALL && way.mode == kMean) {
    found_mean(f, s, way, t, k);
    return f;
  }
  if (t == a) {
    bool open = s.clock == kAsGiven && (way.mode == kLinear || way.mode >= kSlerp);
    if (open) k = before(s, t) - 1; // use the interval that ends at t
    if (!open || k < 0) {
      found_copy(f, max(k, 0));
      f.valid = 1;
      return f;
    }
    a = timestamp(s, k);
  }
  i64 b = timestamp(s, k + 1);
  if (way.mode == kPrevious || way.mode == kNext || way.mode == kNearest) {
    bool right = way.mode == kNext || (way.mode == kNearest && nearer(s, a, t, b));
    found_copy(f, right ? k + 1 : k);
    found_gap(f, s, way, right ? t : a, right ? b : t);
    return f;
  }
  found_blend(f, s, way, t, k, k + 1);
  found_gap(f, s, way, a, b);
  return f;
}

// weight returns part / whole in float64, rounded to float32. For integers that float32 represents
// exactly, float32 division gives the same bits: float64 has more than twice as many bits, so
// rounding twice equals rounding once.
DEVICE float weight(i64 part, i64 whole) {
  if (whole <= 1 << 24) return __fdiv_rn(__int2float_rn((i32)part), __int2float_rn((i32)whole));
  return __double2float_rn(__ddiv_rn(__ll2double_rn(part), __ll2double_rn(whole)));
}

// Brief is a row of a plan without the fields that only rare modes need.
struct Brief {
  i32 left, right;
  float w;
  bool zero, valid;
};

// find_brief is find_row for the most common case: linear, int64 ns, and policy clamp or mask.
// Timestamps are usually almost evenly spaced, so it first looks where an evenly spaced one would
// be.
DEVICE Brief find_brief(const Timestamps &s, i64 max_gap, bool mask, i64 t) {
  Brief f = {0, 0, 0, true, false};
  if (s.n == 0) return f;
  i32 last = s.n - 1, k;
  i64 a, b;
  if (s.step == 1) {
    const i64 *v = s.pivot;
    i64 begin = v[0], end = v[last];
    k = __float2int_rz(
        __fmul_rn(about(__ll2float_rn(t - begin), __ll2float_rn(end - begin)), (float)last));
    k = min(max(k, 0), max(last - 1, 0));
    if (t >= end) k = last; // of equal timestamps, use the last
    a = v[k];
    b = v[min(k + 1, last)];
    if (t >= begin && t < end && (t < a || t >= b)) {
      i64 before = v[max(k - 1, 0)], after = v[min(k + 2, last)];
      if (t >= b && t < after) {
        k++, a = b, b = after;
      } else if (t < a && t >= before) {
        k--, b = a, a = before;
      } else {
        k = not_after4(v, s.n, t) - 1;
        a = v[k];
        b = v[min(k + 1, last)];
      }
    }
    f.valid = t >= begin && t <= end;
  } else {
    k = not_after(s, t) - 1;
    f.valid = k >= 0;
    k = max(k, 0);
    a = *(const i64 *)(s.times + k * s.stride);
    b = *(const i64 *)(s.times + min(k + 1, last) * s.stride);
    f.valid = f.valid && (k < last || t == a);
  }
  f.left = k;
  f.right = min(k + 1, last);
  if (f.valid && t != a) {
    f.w = weight(t - a, b - a);
    f.valid = max_gap == 0 || b - a <= max_gap;
  }
  f.zero = mask && !f.valid;
  return f;
}
