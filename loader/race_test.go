//go:build race

package loader

// raced: the detector makes sync.Pool forget at random.
const raced = true
