//go:build cgo

// The filters of swscale's bilinear scaling, computed by its rules: fixed-point triangles without
// negligible taps, folded back at the borders, and normalized so that rounding errors carry over to
// the next tap.

#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TAPS = 64 };

void rc_taps_free(rc_taps *t)
{
	free(t->position);
	free(t->coefficient);
	memset(t, 0, sizeof(*t));
}

// fill_triangles computes the raw filters.
static void fill_triangles(
	int from, int to, int64_t step, int64_t unit, int size, int *position, int64_t *filter)
{
	int64_t x = step - 0x10000; // twice the position of the center

	for (int i = 0; i < to; i++, x += 2 * step) {
		int first = (int)((x - (size - 2) * (int64_t)0x10000) / (1 << 17));

		position[i] = first;
		for (int j = 0; j < size; j++) {
			int64_t d = (int64_t)(first + j) * (1 << 17) - x;

			d = (d < 0 ? -d : d) << 13;
			if (step > 0x10000)
				d = d * to / from;
			d = ((int64_t)1 << 30) - d;
			filter[(size_t)i * size + j] = d < 0 ? 0 : d * (unit >> 30);
		}
	}
}

// trim_taps moves each filter to its first significant tap. It returns the number of taps that the
// widest filter needs.
static int trim_taps(int to, int64_t unit, int size, int *position, int64_t *filter)
{
	double least = 0.002 * unit;
	int need = 0;

	for (int i = to - 1; i >= 0; i--) {
		int64_t *f = filter + (size_t)i * size, dropped = 0;
		int n = size;

		for (int j = 0; j < size; j++) {
			dropped += f[0];
			if (dropped > least || (i < to - 1 && position[i] >= position[i + 1]))
				break;
			memmove(f, f + 1, (size - 1) * sizeof(*f));
			f[size - 1] = 0;
			position[i]++;
		}
		dropped = 0;
		for (int j = size - 1; j > 0; j--) {
			dropped += f[j];
			if (dropped > least)
				break;
			n--;
		}
		if (n > need)
			need = n;
	}
	return need;
}

// fold_borders adds the taps beyond a border to the last sample inside. The number of taps does not
// exceed the number of samples.
static void fold_borders(int from, int taps, int *position, int64_t *f)
{
	int over = *position + taps - from;

	if (*position < 0) {
		for (int j = 1; j < taps; j++) {
			int64_t v = f[j];

			f[j] = 0;
			f[j + *position > 0 ? j + *position : 0] += v;
		}
		*position = 0;
	} else if (over > 0) {
		int64_t sum = 0;

		for (int j = taps - over; j < taps; j++)
			sum += f[j];
		memmove(f + over, f, (taps - over) * sizeof(*f));
		memset(f, 0, over * sizeof(*f));
		f[taps - 1] += sum;
		*position -= over;
	}
}

// normalize_taps converts a raw filter to integers that add up to one.
static void normalize_taps(int taps, int one, const int64_t *f, int16_t *to)
{
	int64_t sum = 0, error = 0;

	for (int j = 0; j < taps; j++)
		sum += f[j];
	sum = (sum + one / 2) / one;
	if (!sum)
		sum = 1;
	for (int j = 0; j < taps; j++) {
		int64_t v = f[j] + error, q = (v >= 0 ? v + (sum >> 1) : v - (sum >> 1)) / sum;

		to[j] = (int16_t)q;
		error = v - q * sum;
	}
}

int rc_taps_make(rc_taps *t, int from, int to, int align, int one)
{
	int64_t step = (((int64_t)from << 16) + (to >> 1)) / to, unit, *filter = NULL, *row;
	int size, ratio = from / to, log = 0, err = RC_ERR_MEMORY;

	memset(t, 0, sizeof(*t));
	while (ratio >> (log + 1))
		log++;
	unit = (int64_t)1 << (54 - (log < 8 ? log : 8));
	size = step <= 0x10000 ? 3 : 1 + (int)((2 * (int64_t)from + to - 1) / to);
	if (size > from - 2)
		size = from - 2;
	if (size < 1 || size > MAX_TAPS || step < 10)
		return RC_ERR_FORMAT;
	t->position = malloc(sizeof(int) * (size_t)to);
	filter = malloc(sizeof(int64_t) * (size_t)to * size);
	row = malloc(sizeof(int64_t) * (MAX_TAPS + align));
	if (!t->position || !filter || !row)
		goto end;
	if (step > 0x10000 - 10 && step < 0x10000 + 10) { // this direction is not scaled
		size = 1;
		for (int i = 0; i < to; i++) {
			t->position[i] = i;
			filter[i] = unit;
		}
	} else
		fill_triangles(from, to, step, unit, size, t->position, filter);
	t->taps = trim_taps(to, unit, size, t->position, filter);
	if (t->taps == 1 && align == 2)
		align = 1;
	t->taps = (t->taps + align - 1) / align * align;
	err = RC_ERR_FORMAT;
	if (t->taps > from)
		goto end;
	err = RC_ERR_MEMORY;
	if (!(t->coefficient = malloc(sizeof(int16_t) * (size_t)to * t->taps)))
		goto end;
	for (int i = 0; i < to; i++) {
		for (int j = 0; j < t->taps; j++)
			row[j] = j < size ? filter[(size_t)i * size + j] : 0;
		fold_borders(from, t->taps, &t->position[i], row);
		normalize_taps(t->taps, one, row, t->coefficient + (size_t)i * t->taps);
	}
	err = RC_OK;
end:
	free(filter);
	free(row);
	if (err)
		rc_taps_free(t);
	return err;
}
