package nvdec

import (
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
)

// The engine is asked at most so often whether it is done, and so many times.
const (
	glance  = 50 * time.Microsecond
	glances = 50_000
)

// await waits until a surface is decoded, the last of n frames: most of the usual time in one nap,
// then an eighth of it at a time, for looking costs the host more than a frame that is taken late
// costs the engine, which has others. Mapping the surface would wait too, but keep a core busy
// meanwhile. What takes too long is left to the mapping, which has the error. It gives what the
// engine said last.
func (d *decoder) await(surface int32, n int) (status int32) {
	begin, usual := time.Now(), d.usual*time.Duration(n)
	nap := usual * 5 / 8
	for range glances {
		if status = d.b.d.status(d.handle, surface); status != statusRuns {
			break
		}
		cudahost.Nap(max(nap, glance))
		nap = usual / 8
	}
	d.usual = (3*d.usual + min(time.Since(begin)/time.Duration(n), time.Millisecond)) / 4
	return status
}

// decoded waits for the frame in hand, and for those inside with it: until the one that was decoded
// last is done.
func (d *decoder) decoded() {
	if !d.done {
		d.done = true
		d.await(d.newest, 1+len(d.inside))
	}
}

// sound says how the frame in hand was decoded, and asks of those that it may refer to (N5). The
// engine takes them in order, so that all are done.
func (d *decoder) sound() error {
	if d.frame.bad != nil {
		return d.frame.bad
	}
	n, own := d.frame.since, d.frame.surface
	ask := func(s int32) error {
		if s == none {
			return nil
		}
		return d.met(d.b.d.status(d.handle, s))
	}
	for _, s := range d.since[:n] {
		if err := ask(s); err != nil {
			return err
		}
	}
	if !slices.Contains(d.since[:n], own) {
		if err := ask(own); err != nil {
			return err
		}
	}
	d.since, d.frame.since = slices.Delete(d.since, 0, n), 0
	for i := range d.inside {
		d.inside[i].since -= n
	}
	return nil
}

// met is the error of what the engine says of a frame.
func (d *decoder) met(status int32) error {
	switch status {
	case 0, statusRuns, statusGood: // 0: the driver does not say
		return nil
	}
	return d.fault(status)
}

func (d *decoder) fault(status int32) error {
	return robocache.Malformed(
		opDecode,
		robocache.Where{"codec": string(d.entry.Codec)},
		"the engine met an error in the packets (status %d)",
		status,
	)
}
