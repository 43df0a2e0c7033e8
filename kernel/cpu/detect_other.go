//go:build purego || !amd64

package cpu

import "github.com/goatnote-inc/robocache"

// hasVectors reports whether the vector kernels can run.
const hasVectors = false

// streamKernel returns nil: no kernel bypasses the caches.
func streamKernel(src, dst robocache.DType) func(*rowArgs) { return nil }

// isSorted reports whether the timestamps do not decrease.
func isSorted(s []int64) bool { return sortedGo(s) }

// findIntervals finds the intervals of rows in plain Go.
func findIntervals(a *searchArgs) int { return bracketGo(a, 0) }

// flattenPoints computes the voxels of points in plain Go.
func flattenPoints(out []int64, p []float32, g *lattice) int { return flattenGo(out, p, g) }
