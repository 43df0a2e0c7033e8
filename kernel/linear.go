package kernel

import "math"

// lerpColumns blends columns from … to-1 of samples a and b into row i (kernel.K2).
func (r *resampleRun) lerpColumns(i, a, b int, w float64, from, to int) {
	w32 := float32(w)
	for col := from; col < to; col += tile {
		n := min(tile, to-col)
		if r.wide {
			x, y := r.a64[:n], r.b64[:n]
			r.src.loadRow64(x, a, col)
			r.src.loadRow64(y, b, col)
			for j, v0 := range x {
				x[j] = math.FMA(w, y[j]-v0, v0)
			}
			r.finishRow64(x, i, col)
			continue
		}
		x, y := r.a32[:n], r.b32[:n]
		r.src.loadRow32(x, a, col)
		r.src.loadRow32(y, b, col)
		for j, v0 := range x {
			// This is FMA32 written out, because FMA32 is too large to be inlined.
			d := y[j] - v0
			if sum := float64(w32)*float64(d) + float64(v0); roundsOnce(sum) {
				x[j] = float32(sum)
			} else {
				x[j] = fma32Odd(w32, d, v0)
			}
		}
		r.finishRow32(x, i, col)
	}
}

// lerpDense is lerpColumns for float32 rows without gaps, the most common case in robot data.
func (r *resampleRun) lerpDense(i, a, b int, w float32) {
	n := 4 * r.dst.Cols
	do, ao, bo := r.dst.byteOffset(i, 0), r.src.byteOffset(a, 0), r.src.byteOffset(b, 0)
	d, x, y := r.dst.Data[do:do+n], r.src.Data[ao:ao+n], r.src.Data[bo:bo+n]
	for len(d) >= 4 && len(x) >= 4 && len(y) >= 4 {
		v0, v1 := math.Float32frombits(le.Uint32(x)), math.Float32frombits(le.Uint32(y))
		diff := v1 - v0
		if sum := float64(w)*float64(diff) + float64(v0); roundsOnce(sum) {
			le.PutUint32(d, math.Float32bits(float32(sum)))
		} else {
			le.PutUint32(d, math.Float32bits(fma32Odd(w, diff, v0)))
		}
		d, x, y = d[4:], x[4:], y[4:]
	}
}
