//go:build purego || !amd64

package cpu

import "github.com/goatnote-inc/robocache"

const fast = false

func streamKernel(src, dst robocache.DType) func(*rowArgs) { return nil }

func isSorted(s []int64) bool { return sortedGo(s) }

func find(a *searchArgs) int { return bracketGo(a, 0) }

func flatten(out []int64, p []float32, g *lattice) int { return flattenGo(out, p, g) }
