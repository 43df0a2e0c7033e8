// General rows: every mode, type, stride and epilogue. Each thread computes one column or one
// quaternion.
#pragma once
#include "fuse.cuh"

// ---- Philox4x32-10 (kernel.K16) ----

struct Four {
  u32 x[4];
};

const u32 kDrawNoise = 0, kDrawDropout = 1u << 30, kDrawScale = 2u << 30;

DEVICE Four philox(u32 k0, u32 k1, u32 purpose, i32 row, i32 column, u64 sample) {
  u32 c0 = purpose | (u32)column >> 2, c1 = (u32)row, c2 = (u32)sample, c3 = (u32)(sample >> 32);
#pragma unroll 1
  for (i32 round = 0; round < 10; round++) {
    u32 a_high = __umulhi(c0, 0xD2511F53u), a_low = c0 * 0xD2511F53u,
        b_high = __umulhi(c2, 0xCD9E8D57u), b_low = c2 * 0xCD9E8D57u;
    c0 = b_high ^ c1 ^ k0;
    c1 = b_low;
    c2 = a_high ^ c3 ^ k1;
    c3 = a_low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return Four{{c0, c1, c2, c3}};
}

// uniform returns 24 bits in [0, 1), which is exact in float32.
DEVICE float uniform(u32 x) { return __fmul_rn(__uint2float_rn(x >> 8), 5.9604644775390625e-8f); }

COLD float normal(const Extra &e, i32 row, i32 column, u64 sample) {
  Four d = philox(e.key0, e.key1, kDrawNoise, row, column, sample);
  u32 x = d.x[column & 2], y = d.x[(column & 2) + 1];
  double r =
      __dsqrt_rn(__dmul_rn(-2.0, log(__dmul_rn((double)((x >> 8) + 1), 5.9604644775390625e-8))));
  double angle = __dmul_rn(6.283185307179586477, (double)uniform(y));
  return __double2float_rn(__dmul_rn(r, (column & 1) ? sin(angle) : cos(angle)));
}

DEVICE bool drops(const Extra &e, i32 row, u64 sample) {
  return e.augment && e.dropout > 0 &&
         uniform(philox(e.key0, e.key1, kDrawDropout, row, 0, sample).x[0]) < e.dropout;
}

DEVICE float scale_of(const Extra &e, u64 sample) {
  if (!e.augment || (e.scale_lo == 0 && e.scale_hi == 0)) return 1;
  return __fadd_rn(e.scale_lo, __fmul_rn(__fsub_rn(e.scale_hi, e.scale_lo),
                                   uniform(philox(e.key0, e.key1, kDrawScale, 0, 0, sample).x[0])));
}

// ---- arithmetic in either type ----

DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
DEVICE double add(double a, double b) { return __dadd_rn(a, b); }
DEVICE float sub(float a, float b) { return __fsub_rn(a, b); }
DEVICE double sub(double a, double b) { return __dsub_rn(a, b); }
DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
DEVICE double mul(double a, double b) { return __dmul_rn(a, b); }
DEVICE float quotient(float a, float b) { return __fdiv_rn(a, b); }
DEVICE double quotient(double a, double b) { return __ddiv_rn(a, b); }
DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
DEVICE void load_value(const char *p, u8 t, float &x) { x = load_float(p, t); }
DEVICE void load_value(const char *p, u8 t, double &x) { x = load_double(p, t); }
DEVICE void store_value(char *p, u8 t, float x, Casts &c) { store_float(p, t, x, c); }
DEVICE void store_value(char *p, u8 t, double x, Casts &c) { store_double(p, t, x, c); }

// Cell locates an element of the result and holds what its epilogue needs.
struct Cell {
  char *to;
  u8 type;
  i32 column, row; // row: within the sample
  u64 sample;
  float scale;
  bool drop;
};

// finish_value applies the epilogue, rounds once and stores the value.
template <class T>
DEVICE void finish_value(const char *table, const Extra &e, const Cell &cell, T x, Casts &casts) {
  if (e.unit) x = quotient(x, (T)255);
  if (e.norm) {
    i32 k = cell.column / e.plane % e.entries;
    T a = ((const float *)(table + e.a))[k], b = ((const float *)(table + e.b))[k];
    if (b == 0) x = 0;
    else if (e.norm == 1) x = quotient(sub(x, a), b);
    else x = sub(quotient(mul((T)2, sub(x, a)), b), (T)1);
  }
  if (e.clip) {
    if (x < (T)e.clip_lo) x = e.clip_lo;
    else if (x > (T)e.clip_hi) x = e.clip_hi;
  }
  if (e.augment) {
    if (cell.drop) {
      x = 0;
    } else {
      if (e.scale_lo != 0 || e.scale_hi != 0) x = mul(x, (T)cell.scale);
      if (e.noise > 0) x = fused((T)e.noise, (T)normal(e, cell.row, cell.column, cell.sample), x);
    }
  }
  store_value(cell.to, cell.type, x, casts);
}

// Values locates the source of an element.
struct Values {
  const char *from;
  i64 row, column; // strides in bytes
  u8 type, mode;
  bool bits, wide; // rows are copied bit by bit; the computing type is float64
};

template <class T>
DEVICE T value_at(const Values &v, i32 row, i32 column) {
  T x;
  load_value(v.from + row * v.row + column * v.column, v.type, x);
  return x;
}

template <class T>
DEVICE void blend_value(const char *table, const Extra &e, const Values &v, const WideRow &row,
    const Cell &cell, Casts &casts) {
  T a = value_at<T>(v, row.left, cell.column);
  if (row.kind == kBlend) {
    T w = (T)row.w; // rounded for float32
    // fma(0, Inf-a, a) would be NaN. The other modes test the weight before it is rounded.
    if (!(row.w == 0 || (v.mode == kLinear && w == 0)))
      a = fused(w, sub(value_at<T>(v, row.right, cell.column), a), a);
  }
  finish_value<T>(table, e, cell, a, casts);
}

DEVICE double length_of(const double *q) {
  double s = 0;
  for (i32 i = 0; i < 4; i++) s = add(s, mul(q[i], q[i]));
  return __dsqrt_rn(s);
}

// slerp is the slerp of package kernel (wide.go), within 1 ulp of float32. Sine and arc tangent are
// not exactly rounded on any platform.
COLD bool slerp(const double *p0, const double *p1, double w, double *q) {
  double n0 = length_of(p0), n1 = length_of(p1), q0[4], q1[4], dot = 0;
  if (!(n0 > 0 && n1 > 0) || !is_finite(n0) || !is_finite(n1)) {
    for (i32 i = 0; i < 4; i++) q[i] = real(0x7ff8000000000000ull);
    return false;
  }
  for (i32 i = 0; i < 4; i++) {
    q0[i] = quotient(p0[i], n0);
    q1[i] = quotient(p1[i], n1);
    dot = add(dot, mul(q0[i], q1[i]));
  }
  double less[4], more[4];
  for (i32 i = 0; i < 4; i++) {
    if (dot < 0) q1[i] = -q1[i];
    less[i] = sub(q0[i], q1[i]);
    more[i] = add(q0[i], q1[i]);
  }
  double th = mul(2.0, atan2(length_of(less), length_of(more)));
  if (th < 1e-6) {
    for (i32 i = 0; i < 4; i++) q[i] = add(mul(sub(1.0, w), q0[i]), mul(w, q1[i]));
    double n = length_of(q);
    for (i32 i = 0; i < 4; i++) q[i] = quotient(q[i], n);
    return true;
  }
  double s = sin(th), s0 = sin(mul(sub(1.0, w), th)), s1 = sin(mul(w, th));
  for (i32 i = 0; i < 4; i++) q[i] = quotient(add(mul(s0, q0[i]), mul(s1, q1[i])), s);
  return true;
}

// in_quat reports whether a column belongs to a quaternion.
DEVICE bool in_quat(const i32 *quats, i32 count, i32 column) {
#pragma unroll 1
  for (i32 i = 0; i < 4 * count; i++)
    if (quats[i] == column) return true;
  return false;
}

// Out locates the result: the first column of a row.
struct Out {
  char *row;
  i64 column; // stride in bytes
  u8 type;
};

// make_unit computes unit u of a row. Units are columns; with quaternions, the quaternions come
// first, then the columns. It returns false if the values are invalid (kernel.K6).
DEVICE bool make_unit(const char *table, const Extra &e, const Values &v, const WideRow &row,
    const Out &out, Cell cell, i32 u, Casts &casts) {
  i32 size = size_of(out.type);
  // whole: every four columns are a quaternion
  bool quats = v.mode == kSlerp && row.kind == kBlend && row.w != 0,
       whole = v.mode == kSlerp && e.quat_count < 0;
  i32 count = v.mode == kSlerp ? max(e.quat_count, 0) : 0;
  const i32 *list = (const i32 *)(table + e.quats);
  // the thread of the first column computes the quaternion; copies are done column by column
  if (whole ? quats && (u & 3) != 0 : u < count && !quats) return true;
  if (quats && (whole || u < count)) {
    double p0[4], p1[4], q[4];
    i32 column[4];
    for (i32 i = 0; i < 4; i++) {
      column[i] = whole ? u + i : list[4 * u + i];
      p0[i] = value_at<double>(v, row.left, column[i]);
      p1[i] = value_at<double>(v, row.right, column[i]);
    }
    bool ok = slerp(p0, p1, row.w, q);
    for (i32 i = 0; i < 4; i++) {
      cell.column = column[i];
      cell.to = out.row + cell.column * out.column;
      finish_value<double>(table, e, cell, q[i], casts);
    }
    return ok;
  }
  u -= count;
  if (quats && in_quat(list, count, u)) return true;
  cell.column = u;
  cell.to = out.row + u * out.column;
  if (row.kind == kZero) {
    store_bits(cell.to, size, 0);
  } else if (v.bits &&
             (row.kind == kCopy ||
                 (row.kind == kBlend && (row.w == 0 || (v.mode == kLinear && !v.wide &&
                                                           __double2float_rn(row.w) == 0))))) {
    store_bits(cell.to, size, load_bits(v.from + row.left * v.row + u * v.column, size));
  } else if (row.kind == kWindow) {
    double sum = value_at<double>(v, row.left, u);
#pragma unroll 1
    for (i32 k = row.left + 1; k < row.right; k++) sum = add(sum, value_at<double>(v, k, u));
    finish_value<double>(table, e, cell, quotient(sum, (double)(row.right - row.left)), casts);
  } else if (v.mode == kAngle && row.kind == kBlend && row.w != 0) {
    double a = value_at<double>(v, row.left, u), b = value_at<double>(v, row.right, u);
    double r = fused(row.w, remainder(sub(b, a), e.period), a);
    r = sub(r, mul(e.period, floor(quotient(sub(r, e.lo), e.period))));
    finish_value<double>(table, e, cell, r, casts);
  } else if (v.wide) {
    blend_value<double>(table, e, v, row, cell, casts);
  } else {
    blend_value<float>(table, e, v, row, cell, casts);
  }
  return true;
}

// Made locates a row of the result and holds the key of its augmentation.
struct Made {
  Out out;
  u8 *valid; // may be null
  i32 row;   // row within the sample
  u64 sample;
  float scale;
};

// make_rows computes the rows of a plan. at locates row r. With quaternions, a row has a unit for
// each quaternion before the units of its columns.
template <class At>
DEVICE void make_rows(const char *table, const Extra &e, const Values &v, const WideRow *plan,
    i32 n, i32 columns, Casts &casts, At at) {
  i32 units = columns + (v.mode == kSlerp ? max(e.quat_count, 0) : 0), threads = blockDim.x,
      lanes = max(1, threads / max(units, 1));
  if ((i32)threadIdx.x >= lanes * units && units < threads) return;
  i32 lane = units >= threads ? 0 : (i32)threadIdx.x / units;
#pragma unroll 1
  for (i32 r = lane; r < n; r += lanes) {
    WideRow row = plan[r];
    Made m = at(r);
    Cell cell = {nullptr, m.out.type, 0, m.row, m.sample, m.scale,
        row.kind != kZero && drops(e, m.row, m.sample)};
#pragma unroll 1
    for (i32 u = (i32)threadIdx.x - lane * units; u < units; u += threads)
      if (!make_unit(table, e, v, row, m.out, cell, u, casts) && m.valid != nullptr) *m.valid = 0;
  }
}

DEVICE bool computes_wide(u8 from, u8 to) { return from == kF64 || (from < kF16 && to == kF64); }

DEVICE bool computes(const Extra &e) { return e.unit || e.norm || e.clip || e.augment; }
