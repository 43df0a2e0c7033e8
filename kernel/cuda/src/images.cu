// Augments images by the values drawn for them: kernel.ImageOp. Crop, flip, color, noise and the
// float table are done in one pass. Each thread computes four adjacent pixels of all channels.
#include "any.cuh"

// ImageDraw mirrors kernel.ImageDraw.
struct ImageDraw {
  i32 y, x, flip, blank;
  i32 matrix[9], offset, noise;
  u32 key[2], sample[2];
  i32 row, coloured, pad[3];
};
static_assert(sizeof(ImageDraw) == 96, "kernel.ImageDraw of Go has the same layout");

struct ImagePart {
  const u8 *src;
  const ImageDraw *draws;
  char *out;
  const float *table; // 3 × 256; null: the result is bytes
  i64 work;           // first block of the part
  i64 bytes;          // size of src
  i32 from_height, from_width, height, width;
  i32 quads, tiles; // groups of four pixels in a row; blocks per image
};
static_assert(sizeof(ImagePart) == 72, "imagePart of Go has the same layout");

struct Images {
  i64 work;
  i32 parts, pad;
  ImagePart s[50];
};

const i32 kQuads = 1024; // per block; Go uses the same number

// four reads four adjacent bytes at any address. It reads two words if both are inside the memory.
DEVICE u32 four(const u8 *p, const u8 *first, const u8 *end) {
  u32 shift = (u32)((u64)p & 3);
  const u8 *word = p - shift;
  if (shift == 0) return load_once<4>((const char *)p).w[0];
  if (word >= first && word + 8 <= end) {
    u64 low = load_once<4>((const char *)word).w[0],
        high = load_once<4>((const char *)word + 4).w[0];
    return (u32)((high << 32 | low) >> (8 * shift));
  }
  return p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
}

// store_quad writes up to four pixels of one channel.
DEVICE void store_quad(
    const ImagePart &t, const float *table, i64 at, i32 n, bool whole, const i32 *v) {
  if (t.table == nullptr) {
    if (whole) {
      store_once<4>(t.out + at, Words<4>{{(u32)(v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24)}});
    } else {
      for (i32 i = 0; i < n; i++) t.out[at + i] = (char)v[i];
    }
  } else if (whole) {
    store_once<16>(t.out + 4 * at,
        Words<16>{{bits(table[v[0]]), bits(table[v[1]]), bits(table[v[2]]), bits(table[v[3]])}});
  } else {
    for (i32 i = 0; i < n; i++) ((float *)t.out)[at + i] = table[v[i]];
  }
}

DEVICE void augment_quad(
    const ImagePart &t, const float *table, const ImageDraw &d, i64 image, i32 item, bool aligned) {
  i32 y = item / t.quads, x = 4 * (item % t.quads), n = min(t.width - x, 4);
  i64 plane = (i64)t.height * t.width, at = 3 * image * plane + (i64)y * t.width + x;
  bool whole = aligned && n == 4;
  if (d.blank) {
    for (i32 c = 0; c < 3; c++)
      for (i32 i = 0; i < n; i++) {
        if (t.table == nullptr) t.out[at + c * plane + i] = 0;
        else ((float *)t.out)[at + c * plane + i] = 0;
      }
    return;
  }
  i32 row = min(max(d.y + y, 0), t.from_height - 1);
  // The columns of a flipped image descend; first is the lowest of the four.
  i32 first = d.x + (d.flip ? t.width - x - 4 : x);
  const u8 *src = t.src + (3 * image * t.from_height + row) * t.from_width;
  i64 from_plane = (i64)t.from_height * t.from_width;
  i32 v[3][4];
  bool inside = first >= 0 && first + 4 <= t.from_width;
#pragma unroll
  for (i32 c = 0; c < 3; c++) {
    const u8 *line = src + c * from_plane;
    u32 word = inside ? four(line + first, t.src, t.src + t.bytes) : 0;
#pragma unroll
    for (i32 i = 0; i < 4; i++) {
      i32 k = d.flip ? 3 - i : i;
      v[c][i] = inside ? word >> (8 * k) & 255 : line[min(max(first + k, 0), t.from_width - 1)];
    }
  }
  if (d.coloured | d.noise) {
    i32 noise[3][4] = {};
    if (d.noise) {
#pragma unroll
      for (i32 c = 0; c < 3; c++) {
        Four w = philox(d.key[0], d.key[1], 0, (i32)((u32)(d.row + c) * (u32)t.height + (u32)y), x,
            (u64)d.sample[1] << 32 | d.sample[0]);
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
          u32 b = w.x[i];
          noise[c][i] =
              ((i32)((b & 255) + (b >> 8 & 255) + (b >> 16 & 255) + (b >> 24)) - 510) * d.noise >>
              4;
        }
      }
    }
#pragma unroll
    for (i32 i = 0; i < 4; i++) {
      i32 r = v[0][i], g = v[1][i], b = v[2][i];
#pragma unroll
      for (i32 c = 0; c < 3; c++)
        v[c][i] = min(max((d.matrix[3 * c] * r + d.matrix[3 * c + 1] * g + d.matrix[3 * c + 2] * b +
                              d.offset + noise[c][i] + 2048) >>
                              12,
                          0),
            255);
    }
  }
#pragma unroll
  for (i32 c = 0; c < 3; c++) store_quad(t, table + 256 * c, at + c * plane, n, whole, v[c]);
}

extern "C" __global__ void augment_images(const __grid_constant__ Images p) {
  extern __shared__ __align__(16) char shared[];
  float *table = (float *)shared;
  let_next_grid_start();
  wait_for_previous_grid();
#pragma unroll 1
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    i32 part = 0;
#pragma unroll 1
    while (part + 1 < p.parts && p.s[part + 1].work <= work) part++;
    const ImagePart &t = p.s[part];
    i64 q = work - t.work, image = q / t.tiles;
    i32 from = (i32)(q % t.tiles) * kQuads, end = min(from + kQuads, t.quads * t.height);
    if (t.table != nullptr) {
      for (i32 i = threadIdx.x; i < 768; i += blockDim.x) table[i] = t.table[i];
      __syncthreads();
    }
    ImageDraw d = t.draws[image];
    bool aligned = t.width % 4 == 0 && ((u64)t.out & (t.table != nullptr ? 15 : 3)) == 0;
#pragma unroll 1
    for (i32 item = from + (i32)threadIdx.x; item < end; item += blockDim.x)
      augment_quad(t, table, d, image, item, aligned);
    __syncthreads(); // before the table of the next part is loaded
  }
}
