package calvin

import (
	"bytes"
	"testing"
)

// TestChannels compares the loops for CALVIN's shapes with a byte-wise copy, at every length.
func TestChannels(t *testing.T) {
	src := make([]byte, 8*41)
	for i := range src {
		src[i] = byte(i*31 + i>>8)
	}
	for _, shape := range [][2]int{{6, 3}, {8, 4}, {9, 3}, {4, 2}, {12, 4}, {6, 2}} {
		step, width := shape[0], shape[1]
		for pixels := range len(src)/step + 1 {
			for from := 0; from+width <= step; from += width {
				var want []byte
				for p := range pixels {
					want = append(want, src[p*step+from:][:width]...)
				}
				got := bytes.Repeat([]byte{0xee}, len(want)+8)
				copyChannels(got[:len(want)], src[min(from, pixels*step):pixels*step], step, width)
				if pixels == 0 {
					continue
				}
				if !bytes.Equal(got[:len(want)], want) || got[len(want)] != 0xee {
					t.Fatalf(
						"%d of %d bytes from %d, %d pixels: % x, want % x",
						width,
						step,
						from,
						pixels,
						got,
						want,
					)
				}
			}
		}
	}
}
