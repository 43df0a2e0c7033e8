//go:build !purego

package cpu

// flatten is flattenGo, in the best form.
func flatten(out []int64, p []float32, g *lattice) int {
	n := 0
	if fast {
		n = len(out) &^ 7
	}
	inside := 0
	if n > 0 {
		inside = flattenRows(&out[0], &p[:3*n][0], n, g)
	}
	return inside + flattenGo(out[n:], p[3*n:], g)
}
