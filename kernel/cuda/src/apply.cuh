// ApplyOp on the device: its parameters. All parts are in one grid, one after another.
#pragma once
#include "lanes.cuh"

struct Part {
  const char *src;
  char *out;
  const char *kind, *left, *right, *weight; // kind null: row i is computed from row i
  char *valid;
  const char *samples;
  i64 work;             // first block of the part
  i64 src_row, out_row; // strides in bytes
  i32 rows, sources, columns, extra;
  i32 tile, vectors, chunk, chunks;
  u8 type, out_type, mode, vector; // vector: columns per thread; for moved rows: bytes
  u8 moved, pad[3];
};

struct Apply {
  u64 *counts;
  const char *table;
  i64 work;
  i32 parts, plan; // plan: byte offset in shared memory
  Part s[30];
};

// part_of returns the part of a block.
DEVICE i32 part_of(const Apply &p, i64 work) {
  i32 lo = 0, hi = p.parts - 1;
#pragma unroll 1
  while (lo < hi) {
    i32 m = (lo + hi + 1) >> 1;
    if (p.s[m].work <= work) lo = m;
    else hi = m - 1;
  }
  return lo;
}

// load_plan reads row i of a part's plan. The plan comes from outside, so its indices are limited
// to the sources.
DEVICE Found load_plan(const Apply &p, const Part &x, i32 i) {
  Found f = {};
  f.valid = 1;
  if (x.kind == nullptr) {
    found_copy(f, i);
    return f;
  }
  const Extra &e = *(const Extra *)(p.table + x.extra);
  f.kind = *(const u8 *)(x.kind + i * e.strides[0]);
  f.left = min(max(*(const i32 *)(x.left + i * e.strides[1]), 0), x.sources - 1);
  f.right = min(max(*(const i32 *)(x.right + i * e.strides[2]), 0),
      f.kind == kWindow ? x.sources : x.sources - 1);
  f.w = *(const double *)(x.weight + i * e.strides[3]);
  if (x.sources == 0) f.kind = kZero;
  return f;
}
