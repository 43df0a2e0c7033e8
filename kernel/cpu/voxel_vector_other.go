//go:build purego || !amd64

package cpu

func flatten(out []int64, p []float32, g *lattice) int { return flattenGo(out, p, g) }

func accumulate(*sumArgs) { panic("no kernel") }

func sumRuns(*sumArgs) { panic("no kernel") }

func settle(*sumArgs) { panic("no kernel") }

func settleFar(*sumArgs) { panic("no kernel") }
