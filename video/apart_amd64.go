//go:build amd64 && !purego

package video

import "golang.org/x/sys/cpu"

// shuffles[3*c+k] takes the bytes of channel c out of the k-th 16 of 48 bytes, and puts them where they belong among 16 pixels.
var shuffles = func() (m [9][16]byte) {
	for i := range m {
		for k := range m[i] {
			m[i][k] = 0x80 // a zero
		}
	}
	for pixel := range 16 {
		for c := range 3 {
			at := 3*pixel + c
			m[3*c+at/16][pixel] = byte(at % 16)
		}
	}
	return m
}()

//go:noescape
func apartSSSE3(red, green, blue, rgb *byte, blocks int, masks *[9][16]byte)

// apartFast does the pixels that fill whole blocks of 16, and says how many they are.
func apartFast(r, g, b, rgb []byte) int {
	blocks := len(r) / 16
	if blocks == 0 || !cpu.X86.HasSSSE3 {
		return 0
	}
	apartSSSE3(&r[0], &g[0], &b[0], &rgb[0], blocks, &shuffles)
	return 16 * blocks
}
