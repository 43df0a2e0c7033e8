//go:build race

package cpu

// raced: the detector makes sync.Pool forget at random.
const raced = true
