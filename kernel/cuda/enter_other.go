//go:build !linux || !amd64

package cuda

type passage struct{}

func (g *gpu) oneLaunch(*scratchWords, uintptr) int32 { return invalidValue }

const hasOneLaunch = false
