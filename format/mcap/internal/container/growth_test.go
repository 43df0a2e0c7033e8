package container

import (
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// M4: a chunk of images that show nothing (a lens cap, a simulator's first seconds, depth of zeros)
// grows seven thousand times and is read; what claims much from little is refused, and the error
// says what to do.
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
		return k.check(file, DefaultLimits)
	}
	for _, c := range [][2]int64{{2765355, 361}, {64 << 20, 4000}, {200 << 20, 300 << 10}} {
		if err := check(c[0], c[1]); err != nil {
			t.Errorf("%d bytes of %d: %v", c[0], c[1], err)
		}
	}
	for _, c := range [][2]int64{{65 << 20, 4000}, {257 << 20, 900 << 10}} {
		var e *robocache.Error
		if err := check(
			c[0],
			c[1],
		); !errors.As(err, &e) || e.Class != robocache.ErrResourceLimit ||
			!strings.Contains(e.Hint, "smaller chunks") {
			t.Errorf("%d bytes of %d: %v", c[0], c[1], err)
		}
	}
}
