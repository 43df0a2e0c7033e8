package nvdec

import (
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
)

// pollInterval is the minimum time between two polls of the engine, and maxPolls their maximum
// number for one frame.
const (
	pollInterval = 50 * time.Microsecond
	maxPolls     = 50_000
)

// awaitSurface blocks until surface, the last of n frames, is decoded, and returns its last status.
// It sleeps for 5/8 of the expected decode time, then polls every 1/8. Polling rarely is cheaper: a
// late frame costs the engine little, because it has other frames to decode. Mapping the surface
// would also wait, but it keeps a core busy. After maxPolls it gives up: the call that maps the
// surface reports the error.
func (d *decoder) awaitSurface(surface int32, n int) (status int32) {
	begin, expected := time.Now(), d.usualWait*time.Duration(n)
	sleep := expected * 5 / 8
	for range maxPolls {
		if status = d.backend.driver.surfaceStatus(d.handle, surface); status != statusRuns {
			break
		}
		cudahost.Nap(max(sleep, pollInterval))
		sleep = expected / 8
	}
	perFrame := min(time.Since(begin)/time.Duration(n), time.Millisecond)
	d.usualWait = (3*d.usualWait + perFrame) / 4
	return status
}

// awaitPending blocks until the current frame and all pending frames are decoded. It waits for the
// surface that was decoded last.
func (d *decoder) awaitPending() {
	if !d.engineDone {
		d.engineDone = true
		d.awaitSurface(d.newestSurface, 1+len(d.pending))
	}
}

// checkDecoded returns an error if the engine reported one for the current frame or for a frame
// that it may refer to (nvdec.N5). The engine decodes in order, so all of them are complete.
func (d *decoder) checkDecoded() error {
	if d.frame.decodeErr != nil {
		return d.frame.decodeErr
	}
	// The first n unchecked surfaces were decoded up to this frame.
	n, ownSurface := d.frame.unchecked, d.frame.surface
	checkSurface := func(s int32) error {
		if s == none {
			return nil
		}
		return d.statusError(d.backend.driver.surfaceStatus(d.handle, s))
	}
	for _, s := range d.unchecked[:n] {
		if err := checkSurface(s); err != nil {
			return err
		}
	}
	if !slices.Contains(d.unchecked[:n], ownSurface) {
		if err := checkSurface(ownSurface); err != nil {
			return err
		}
	}
	// Those surfaces are removed, so the counts of the frames after this one decrease.
	d.unchecked, d.frame.unchecked = slices.Delete(d.unchecked, 0, n), 0
	for i := range d.pending {
		d.pending[i].unchecked -= n
	}
	return nil
}

// statusError returns the error for a status of the engine, or nil.
func (d *decoder) statusError(status int32) error {
	switch status {
	case 0, statusRuns, statusGood: // 0: the driver does not report a status
		return nil
	}
	return d.engineError(status)
}

// engineError returns the error for a frame that the engine could not decode.
func (d *decoder) engineError(status int32) error {
	return robocache.Malformed(
		opDecode,
		robocache.Where{"codec": string(d.entry.Codec)},
		"the engine found an error in the packets (status %d)",
		status,
	)
}
