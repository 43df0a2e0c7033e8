//go:build !purego

package cpu

// instructions names the instructions that blend rows. Every arm64 processor has NEON.
const instructions = "NEON"
