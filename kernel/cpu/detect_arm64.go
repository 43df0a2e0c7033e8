//go:build !purego

package cpu

// instructions is what rows are blended with: every arm64 has them.
const instructions = "NEON"
