package container

import (
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestChunkGrowth checks that a chunk of uniform images (a lens cap, the first seconds of a
// simulator, depth of zeros), which grows seven thousand times, is read. A chunk that declares a
// very large size is rejected with a hint (mcap.M4).
func TestChunkGrowth(t *testing.T) {
	const file = 1 << 20
	check := func(size, compressed int64) error {
		k := Chunk{
			Offset:      100,
			Length:      compressed + headSize,
			Compressed:  compressed,
			Size:        size,
			Compression: Zstd,
		}
		return k.checkSizes(file, DefaultLimits)
	}
	for _, c := range [][2]int64{{2765355, 361}, {64 << 20, 4000}, {200 << 20, 300 << 10}} {
		if err := check(c[0], c[1]); err != nil {
			t.Errorf("%d bytes of %d: %v", c[0], c[1], err)
		}
	}
	for _, c := range [][2]int64{{65 << 20, 4000}, {257 << 20, 900 << 10}} {
		var e *robocache.Error
		if err := check(c[0], c[1]); !errors.As(err, &e) || e.Class != robocache.ErrResourceLimit ||
			!strings.Contains(e.Hint, "smaller chunks") {
			t.Errorf("%d bytes of %d: %v", c[0], c[1], err)
		}
	}
}
