//go:build !amd64 || purego

package blosc

func fastPlanes(dst, src []byte, n, size int) int { return 0 }

func fastBits(dst, rows []byte, row int) int { return 0 }
