package video

// apart takes packed pixels apart: rgb holds len(r) of them. What it writes is the same with and without instructions for it.
func apart(r, g, b, rgb []byte) {
	n := len(r)
	g, b, rgb = g[:n], b[:n], rgb[:3*n]
	done := apartFast(r, g, b, rgb)
	for i := done; i < n; i++ {
		p := rgb[3*i : 3*i+3 : 3*i+3]
		r[i], g[i], b[i] = p[0], p[1], p[2]
	}
}
