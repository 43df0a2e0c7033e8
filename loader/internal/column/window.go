package column

import (
	"github.com/goatnote-inc/robocache"
)

// Window is a set of row offsets that columns may share. Columns that are read by time use Nanos
// instead.
type Window struct {
	Offsets []int
	Nanos   []int64
}

// TextWindowError returns the error of a window over a text column.
func TextWindowError(key string) error {
	return robocache.Misuse("loader", robocache.Where{"stream": key}, "a window of a text").
		WithHint("Omit the window: a text is that of the sample's own time.")
}
