package cuda

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Flow sends pieces of host memory through a device: in, an operation, out again. Several pieces are on their way at once, each on a stream and
// in device memory of its own, so that the copies of one overlap with the kernel of another and with the copies the other way.
type Flow struct {
	d     *Device
	slots []slot
	sizes []int
	next  int
}

type slot struct {
	stream uintptr
	block  uintptr   // one allocation
	addrs  []uintptr // in it, 256-aligned
}

// NewFlow takes device memory for so many pieces at once (3 keep both directions busy), each of blocks of so many bytes: one for each tensor of
// the operation, in its order.
func (d *Device) NewFlow(pieces int, sizes ...int) (*Flow, error) {
	f := &Flow{d: d, sizes: sizes}
	total := 0
	for _, n := range sizes {
		if n < 0 {
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "flow", Msg: "size of a block", Want: "0 or more", Got: fmt.Sprint(n)}
		}
		total += (n + 255) &^ 255
	}
	if pieces < 1 {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "flow", Msg: "pieces at once", Want: "1 or more", Got: fmt.Sprint(pieces)}
	}
	free, all, err := d.Memory()
	if err != nil {
		return nil, err
	}
	if int64(total) > free/int64(pieces) {
		return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "flow", Msg: "memory budget", Want: fmt.Sprintf("at most %d bytes free of %d", free, all), Got: fmt.Sprintf("%d pieces of %d", pieces, total), Hint: "smaller pieces"}
	}
	for range pieces {
		s := slot{}
		if s.stream, err = d.NewStream(); err == nil {
			s.block, err = d.Alloc(total)
		}
		at := s.block
		for _, n := range sizes {
			s.addrs = append(s.addrs, at)
			at += uintptr((n + 255) &^ 255)
		}
		f.slots = append(f.slots, s)
		if err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// Do puts one piece on its way: in[i] goes to block i, run launches on the addresses of the blocks (Launch.Run, say), out[i] comes from block i;
// nil where nothing is to be copied. It returns when all of that is queued, and waits only for an earlier piece whose place it takes. Memory
// of the host should be page-locked, and belongs to the flow until Wait, or until as many pieces as are at once have been put after it.
func (f *Flow) Do(in, out [][]byte, run func(addrs []uintptr, stream uintptr) error) (err error) {
	defer guard.Into(&err)
	s := &f.slots[f.next]
	f.next = (f.next + 1) % len(f.slots)
	guard.Check(f.d.Wait(s.stream))
	for i, b := range in {
		f.fits(i, b)
		guard.Check(f.d.CopyInAsync(s.addrs[i], b, s.stream))
	}
	guard.Check(run(s.addrs, s.stream))
	for i, b := range out {
		f.fits(i, b)
		guard.Check(f.d.CopyOutAsync(b, s.addrs[i], s.stream))
	}
	return nil
}

func (f *Flow) fits(i int, b []byte) {
	if i >= len(f.sizes) || len(b) > f.sizes[i] {
		guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "flow", Where: robocache.Where{"block": i}, Msg: "a piece that does not fit", Want: fmt.Sprint("blocks of ", f.sizes), Got: fmt.Sprint(len(b))})
	}
}

// Wait returns when all pieces have come back, with the first error.
func (f *Flow) Wait() error {
	var first error
	for _, s := range f.slots {
		if err := f.d.Wait(s.stream); first == nil {
			first = err
		}
	}
	return first
}

// Close waits, and gives everything back.
func (f *Flow) Close() {
	_ = f.Wait()
	for _, s := range f.slots {
		f.d.Free(s.block)
		f.d.FreeStream(s.stream)
	}
	f.slots = nil
}
