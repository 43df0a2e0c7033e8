package write

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// write.W3: file numbers stay below 1000, because readers sort names as text.
func TestNextFile(t *testing.T) {
	for _, c := range []struct{ chunk, file, size, wantChunk, wantFile int }{
		{0, 0, 1000, 0, 1},
		{0, 999, 1000, 1, 0},
		{3, 1, 2, 4, 0},
	} {
		a, b, err := nextFile(c.chunk, c.file, c.size, "data", nil)
		if err != nil || a != c.wantChunk || b != c.wantFile {
			t.Errorf("%+v: %d %d %v", c, a, b, err)
		}
	}
	if _, _,
		err := nextFile(999, 999, 1000, "data", nil); !errors.Is(err, robocache.ErrResourceLimit) {
		t.Errorf("%v", err)
	}
}
