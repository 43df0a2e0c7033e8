package column

import (
	"github.com/goatnote-inc/robocache"
)

// Window is a set of row offsets that several columns may share; in time, where they go by time.
type Window struct {
	Offsets []int
	Nanos   []int64
}

func TextWindow(key string) error {
	return robocache.Misuse("loader", robocache.Where{"stream": key}, "a window of a text").
		WithHint("texts are those of the sample's own time")
}
