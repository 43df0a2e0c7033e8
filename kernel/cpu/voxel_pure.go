package cpu

func flatten(out []int32, p []float32, g *lattice) { flattenGo(out, p, g) }
