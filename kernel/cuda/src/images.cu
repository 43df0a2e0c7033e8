// Augments images by the values drawn for them: kernel.ImageOp. Crop, flip, color, noise and the
// float table are done in one pass. Each thread computes four adjacent pixels of all channels.
#include "any.cuh"

// ImageDraw mirrors kernel.ImageDraw.
struct ImageDraw {
  i32 y, x, flip, blank;
  i32 matrix[9], offset, noise;
  u32 key[2], sample[2];
  i32 row, coloured, rotated, cos, sin;
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

// ---- Scaled, rotated and interleaved images: kernel.ImageForm ----
// Each thread computes one pixel of all channels directly from the crop. Sums are those of package
// kernel/resize, in its order.

enum { kBytes, kFloats, kFixed, kNone };

// Axis is a sparse matrix in memory: first sample of each output, start of its weights, weights.
struct Axis {
  const i32 *first;
  i32 to, shift;
};
static_assert(sizeof(Axis) == 16, "transformAxis of Go has the same layout");

struct TransformPart {
  const u8 *src;
  const ImageDraw *draws;
  char *out;
  const float *table; // 3 × 256; null: the result is bytes
  i64 work;           // first block of the part
  Axis x, y;
  float gain, bias;
  i32 from_height, from_width, crop_height, crop_width, height, width;
  i32 tiles, arithmetic, rotates, channels_last;
};
static_assert(sizeof(TransformPart) == 120, "transformPart of Go has the same layout");

struct Transforms {
  i64 work;
  i32 parts, pad;
  TransformPart s[30];
};

DEVICE i32 clamped(i32 v, i32 n) { return min(max(v, 0), n - 1); }

// mirrored reflects an index once at each end.
DEVICE i32 mirrored(i32 i, i32 n) {
  if (i < 0) i = -i;
  if (i >= n) i = 2 * n - 2 - i;
  return clamped(i, n);
}

// Source is one channel of the crop of one image.
struct Source {
  const u8 *plane;
  i32 y, x, height, width; // first pixel of the crop; size of the plane
};

DEVICE i32 crop_pixel(const Source &s, i32 y, i32 x) {
  return s.plane[(i64)clamped(s.y + y, s.height) * s.width + clamped(s.x + x, s.width)];
}

DEVICE i32 sum_bytes(const TransformPart &t, const Source &s, i32 y, i32 x) {
  const i32 *start_y = t.y.first + t.y.to, *start_x = t.x.first + t.x.to;
  const i32 *weights_y = start_y + t.y.to + 1, *weights_x = start_x + t.x.to + 1;
  i32 row = t.y.first[y], left = t.x.first[x], from = start_x[x], n = start_x[x + 1] - from;
  i32 sum = t.y.shift ? 1 << (t.y.shift - 1) : 0;
#pragma unroll 1
  for (i32 j = start_y[y]; j < start_y[y + 1]; j++, row++) {
    i32 line = t.x.shift ? 1 << (t.x.shift - 1) : 0;
#pragma unroll 1
    for (i32 k = 0; k < n; k++) line += weights_x[from + k] * crop_pixel(s, row, left + k);
    sum += weights_y[j] * clamped(line >> t.x.shift, 256);
  }
  return clamped(sum >> t.y.shift, 256);
}

DEVICE i32 sum_floats(const TransformPart &t, const Source &s, i32 y, i32 x) {
  const i32 *start_y = t.y.first + t.y.to, *start_x = t.x.first + t.x.to;
  const float *weights_y = (const float *)(start_y + t.y.to + 1),
              *weights_x = (const float *)(start_x + t.x.to + 1);
  i32 row = t.y.first[y], left = t.x.first[x], from = start_x[x], n = start_x[x + 1] - from;
  float sum = 0;
#pragma unroll 1
  for (i32 j = start_y[y]; j < start_y[y + 1]; j++, row++) {
    float line = 0;
#pragma unroll 1
    for (i32 k = 0; k < n; k++)
      line = add(line, mul((float)crop_pixel(s, row, left + k), weights_x[from + k]));
    sum = add(sum, mul(line, weights_y[j]));
  }
  // The sum with 1.5·2^23 has no fractional bits.
  return clamped((i32)bits(add(add(mul(sum, t.gain), t.bias), 12582912.0f)) - 0x4b400000, 256);
}

DEVICE i32 blend_fixed(const TransformPart &t, const Source &s, i32 y, i32 x) {
  const i32 *weights_y = t.y.first + 2 * t.y.to + 1 + 2 * y,
            *weights_x = t.x.first + 2 * t.x.to + 1 + 2 * x;
  i32 left = t.x.first[x], right = min(left + 1, t.crop_width - 1), row[2];
#pragma unroll
  for (i32 j = 0; j < 2; j++) {
    i32 at = clamped(t.y.first[y] + j, t.crop_height);
    i32 sum = crop_pixel(s, at, left) * weights_x[0] + crop_pixel(s, at, right) * weights_x[1];
    row[j] = weights_y[j] * (sum >> 4) >> 16;
  }
  return (row[0] + row[1] + 2) >> 2 & 255;
}

DEVICE i32 scaled_pixel(const TransformPart &t, const Source &s, i32 y, i32 x) {
  if (t.arithmetic == kNone) return crop_pixel(s, y, x);
  if (t.arithmetic == kBytes) return sum_bytes(t, s, y, x);
  return t.arithmetic == kFloats ? sum_floats(t, s, y, x) : blend_fixed(t, s, y, x);
}

DEVICE i32 turned_pixel(const TransformPart &t, const ImageDraw &d, const Source &s, i32 y, i32 x) {
  if (!(t.rotates && d.rotated)) return scaled_pixel(t, s, y, x);
  i64 dx = 2 * x - (t.width - 1), dy = 2 * y - (t.height - 1);
  i64 px = d.cos * dx - d.sin * dy + ((i64)(t.width - 1) << 16),
      py = d.sin * dx + d.cos * dy + ((i64)(t.height - 1) << 16);
  i32 left = (i32)(px >> 17), top = (i32)(py >> 17);
  i32 fx = (i32)(px >> 10) & 127, fy = (i32)(py >> 10) & 127, line[2];
#pragma unroll 1
  for (i32 j = 0; j < 2; j++) {
    i32 row = mirrored(top + j, t.height);
    line[j] = scaled_pixel(t, s, row, mirrored(left, t.width)) * (128 - fx) +
              scaled_pixel(t, s, row, mirrored(left + 1, t.width)) * fx;
  }
  return (line[0] * (128 - fy) + line[1] * fy + (1 << 13)) >> 14;
}

DEVICE void transform_pixel(
    const TransformPart &t, const ImageDraw &d, i64 image, i32 y, i32 x) {
  i32 v[3] = {0, 0, 0};
  i64 pixels = (i64)t.height * t.width, at = (i64)y * t.width + x;
  if (!d.blank) {
    i32 from = d.flip ? t.width - 1 - x : x;
#pragma unroll 1
    for (i32 c = 0; c < 3; c++) {
      Source s = {t.src + (3 * image + c) * t.from_height * t.from_width, d.y, d.x, t.from_height,
          t.from_width};
      v[c] = turned_pixel(t, d, s, y, from);
    }
  }
  if (!d.blank && (d.coloured | d.noise)) {
    i32 r = v[0], g = v[1], b = v[2];
#pragma unroll 1
    for (i32 c = 0; c < 3; c++) {
      i32 noise = 0;
      if (d.noise) {
        Four w = philox(d.key[0], d.key[1], 0, (i32)((u32)(d.row + c) * (u32)t.height + (u32)y), x,
            (u64)d.sample[1] << 32 | d.sample[0]);
        u32 q = w.x[x & 3];
        noise =
            ((i32)((q & 255) + (q >> 8 & 255) + (q >> 16 & 255) + (q >> 24)) - 510) * d.noise >> 4;
      }
      i32 sum = d.matrix[3 * c] * r + d.matrix[3 * c + 1] * g + d.matrix[3 * c + 2] * b + d.offset;
      v[c] = clamped((sum + noise + 2048) >> 12, 256);
    }
  }
#pragma unroll 1
  for (i32 c = 0; c < 3; c++) {
    i64 to = t.channels_last ? 3 * (image * pixels + at) + c : (3 * image + c) * pixels + at;
    if (t.table == nullptr) t.out[to] = (char)v[c];
    else ((float *)t.out)[to] = d.blank ? 0 : t.table[256 * c + v[c]];
  }
}

extern "C" __global__ void transform_images(const __grid_constant__ Transforms p) {
  let_next_grid_start();
  wait_for_previous_grid();
#pragma unroll 1
  for (i64 work = blockIdx.x; work < p.work; work += gridDim.x) {
    i32 part = 0;
#pragma unroll 1
    while (part + 1 < p.parts && p.s[part + 1].work <= work) part++;
    const TransformPart &t = p.s[part];
    i64 q = work - t.work, image = q / t.tiles;
    i32 from = (i32)(q % t.tiles) * kQuads, end = min(from + kQuads, t.height * t.width);
#pragma unroll 1
    for (i32 item = from + (i32)threadIdx.x; item < end; item += blockDim.x)
      transform_pixel(t, t.draws[image], image, item / t.width, item % t.width);
  }
}
