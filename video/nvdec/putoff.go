package nvdec

import (
	"sync"

	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// maxPutOff is how many copies are put off.
const maxPutOff = 64

// putOff holds copies within the device that are still to be launched, all of one form, so that many are one call of the driver: calls wait for one another, and
// for those of whoever trains. They are launched before anything else comes on the stream, and before what they read or write is given back: nobody can tell.
type putOff struct {
	mu       sync.Mutex
	rows     cuda.Rows
	to, from []uintptr
	err      error // of a launch: what was promised is not there, so that nothing that comes later can be right
}

// putOff puts a copy off.
func (b *Backend) putOff(to, from uintptr, rows cuda.Rows) error {
	w := &b.later
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.to) == maxPutOff || len(w.to) > 0 && w.rows != rows || w.writes(to) {
		w.launch(b)
	}
	w.rows, w.to, w.from = rows, append(w.to, to), append(w.from, from)
	return w.err
}

// writes says whether one of the copies writes where another one of their form would.
func (w *putOff) writes(to uintptr) bool {
	size := uintptr(w.rows.Extent())
	for _, x := range w.to {
		if x-to < size || to-x < size {
			return true
		}
	}
	return false
}

// launch launches what was put off.
func (b *Backend) launch() error {
	b.later.mu.Lock()
	defer b.later.mu.Unlock()
	b.later.launch(b)
	return b.later.err
}

func (w *putOff) launch(b *Backend) {
	if len(w.to) == 0 {
		return
	}
	if w.err == nil {
		var s uintptr
		if s, w.err = b.order(); w.err == nil {
			w.err = b.d.copyRows(w.to, w.from, &w.rows, s)
		}
	}
	w.to, w.from = w.to[:0], w.from[:0]
}
