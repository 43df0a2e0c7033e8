//go:build race

package cpu

// raced reports whether the race detector is on. The detector makes sync.Pool drop objects at
// random.
const raced = true
