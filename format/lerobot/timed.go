package lerobot

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// timedFile finds the frames of an mp4 by presentation time, because the file has another number of
// frames than its episodes have rows. It is immutable.
type timedFile struct {
	index       int32 // position in camera.files
	frames      int
	rows        int
	interval    int64 // median time between two frames, ns; 0 if unknown
	claims      []claim
	wholeByEnds bool // the claims end at to_timestamp and cover the file without a gap
}

// claim is the part of an mp4 that the metadata assigns to an episode, in nanoseconds.
type claim struct {
	episode  int32
	from, to int64
}

// rowStep returns the time between two rows that info.json declares, in nanoseconds.
func (d *Dataset) rowStep() int64 { return d.raw.fps.Nanos(1) }

// newTimedFile reads the parts that the metadata assigns to the episodes of a file.
func (d *Dataset) newTimedFile(c *camera, file int32, rows int, ix *video.Index) *timedFile {
	f := &timedFile{index: file, frames: ix.NumFrames(), rows: rows, interval: ix.Interval()}
	for _, e := range c.byFile.of(file) {
		from, ok := d.videoStart(c, int(e))
		if !ok {
			continue // framesByTime reports an invalid from_timestamp
		}
		to, ok := nanoseconds(timestampAt(c.cols.to, int(e)))
		if !ok {
			to = from - 1 // makes coversFile return false
		}
		if d.episodes.length[e] == 0 && to <= from {
			continue // it has no rows and no frames
		}
		f.claims = append(f.claims, claim{e, from, to})
	}
	slices.SortStableFunc(f.claims, func(a, b claim) int { return cmp.Compare(a.from, b.from) })
	if f.wholeByEnds = f.coversFile(ix, f.tolerance(d.rowStep())); !f.wholeByEnds {
		for i, k := range f.claims {
			f.claims[i].to = k.from + d.raw.fps.Nanos(int64(d.episodes.length[k.episode]))
		}
	}
	return f
}

// coversFile reports whether the claims are adjacent, from the first frame to the end of the last.
func (f *timedFile) coversFile(ix *video.Index, within int64) bool {
	if f.frames == 0 || len(f.claims) == 0 {
		return false
	}
	expected := ix.TimeNS(0)
	for _, k := range f.claims {
		if k.to < k.from || max(k.from, expected)-min(k.from, expected) > within {
			return false
		}
		expected = k.to
	}
	end := ix.TimeNS(f.frames-1) + f.interval
	return max(end, expected)-min(end, expected) <= within
}

// tolerance returns the largest time between a frame and its row if rows have the given step.
func (f *timedFile) tolerance(step int64) int64 { return video.HalfFrame(f.interval, step) }

// nanoseconds converts seconds of the metadata. ok is false if they cannot be a time of a video.
func nanoseconds(seconds float64) (ns int64, ok bool) {
	const maxSeconds = 4e9 // the sum of two such times fits int64 nanoseconds
	if math.IsNaN(seconds) || math.Abs(seconds) > maxSeconds {
		return 0, false
	}
	return int64(math.RoundToEven(seconds * 1e9)), true
}

// videoStart returns the time at which an episode begins in its mp4, in nanoseconds. It is
// from_timestamp. In v2, whose episodes have one file each, it is the time of the first row in that
// file, which is 0 in a sound dataset. ok is false if the metadata has no valid time.
func (d *Dataset) videoStart(c *camera, episode int) (ns int64, ok bool) {
	if d.raw.major == 2 {
		return d.raw.fps.Nanos(d.episodes.start[episode]), true
	}
	return nanoseconds(timestampAt(c.cols.from, episode))
}

// framesByTime returns the frame of each row of an episode. The whole episode is malformed if a row
// has no frame within half a frame, or if the metadata assigns its frames also to another episode.
func (d *Dataset) framesByTime(
	ctx context.Context,
	c *camera,
	f *camFile,
	episode int,
) ([]int32, error) {
	key := unitKey{
		file:  f.timed.index,
		group: int32(episode),
		col:   unitFrames,
		page:  int32(d.byKey[c.key]),
	}
	load, err := d.tables.cache.Load(ctx, key, func() (any, int64, error) {
		frames, mismatch, err := d.matchTimes(ctx, c, f, episode)
		if err = cmp.Or(err, mismatch); err != nil {
			return nil, 0, err
		}
		return frames, int64(4*cap(frames)) + 64, nil
	})
	if err != nil {
		return nil, err
	}
	return load.([]int32), nil
}

// matchTimes returns the frame of each row of an episode. mismatch is the error about rows without
// frames. err is an error of reading the timestamps or the video.
func (d *Dataset) matchTimes(
	ctx context.Context,
	c *camera,
	f *camFile,
	episode int,
) (frames []int32, mismatch, err error) {
	rowTimes, err := d.Times(ctx, episode, "")
	if err != nil {
		return nil, nil, err
	}
	file, err := d.library.Acquire(ctx, f.path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Release()
	ix := file.Index
	step := video.MedianStep(rowTimes)
	if step <= 0 {
		step = d.rowStep()
	}
	m := timeMatch{
		dataset: d,
		camera:  c,
		file:    f,
		episode: episode,
		within:  f.timed.tolerance(step),
	}
	from, ok := d.videoStart(c, episode)
	if !ok || from < 0 {
		return nil, m.mismatchError("from_timestamp does not state where the episode begins",
			"seconds from 0 on", fmt.Sprint(timestampAt(c.cols.from, episode))), nil
	}
	if first := rowTimes[0]; first > m.within && first < step+m.within {
		return nil, m.rowError(0, "the timestamps count from one frame after 0: "+
			"its first frame may or may not belong to the first row", "0 s",
			video.Seconds(first)), nil
	}
	times := make([]int64, len(rowTimes))
	for k, t := range rowTimes {
		times[k] = from + t
		const maxTime = 1 << 62 // from + t may overflow beyond it
		if t > maxTime || t < -maxTime {
			outside := m.rowError(k, "the row is outside of it", "a time", fmt.Sprintf("%d ns", t))
			return nil, outside, nil
		}
	}
	frames, unmatched := ix.FramesOfRows(times, m.within)
	if unmatched != nil {
		return nil, m.rowError(unmatched.Row, unmatched.Msg, unmatched.Want, unmatched.Got), nil
	}
	// The rows and their frames must be outside the parts of other episodes.
	first := min(times[0], ix.TimeNS(int(frames[0])))
	last := max(times[len(times)-1], ix.TimeNS(int(frames[len(frames)-1]))+1)
	if err := m.checkClaims(from, first, last); err != nil {
		return nil, err, nil
	}
	return frames, nil, nil
}

// timeMatch is the search for the frames of an episode's rows by time.
type timeMatch struct {
	dataset *Dataset
	camera  *camera
	file    *camFile
	episode int
	within  int64 // tolerance in nanoseconds
}

// mismatchError returns the error that the rows of the episode do not match the video.
func (m *timeMatch) mismatchError(msg, want, got string) *robocache.Error {
	where := robocache.Where{
		"file":    m.file.path,
		"stream":  m.camera.key,
		"episode": m.dataset.episodes.indexAt(m.episode),
	}
	timed := m.file.timed
	counts := fmt.Sprintf("the video has %d frames for %d rows", timed.frames, timed.rows)
	return robocache.Malformed("lerobot frames", where, "%s, and %s", counts, msg).
		Expected(want, got).WithHint("%s", m.dataset.noFrameHint())
}

// rowError returns the error that a row of the episode does not match the video.
func (m *timeMatch) rowError(row int, msg, want, got string) error {
	err := m.mismatchError(msg, want, got)
	err.Where["row"] = row
	return err
}

// checkClaims returns an error if the time from first to last is in the part of another episode.
// from is the start of the episode in the video.
func (m *timeMatch) checkClaims(from, first, last int64) error {
	for _, k := range m.file.timed.claims {
		isOther := int(k.episode) != m.episode
		// Both ends are shifted, because a frame may precede its row by the tolerance.
		overlaps := last > k.from-m.within && first < k.to-m.within
		if isOther && overlaps {
			got := fmt.Sprintf(
				"from_timestamp %s, and %s of episode %d",
				video.Seconds(from),
				video.Seconds(k.from),
				m.dataset.episodes.indexAt(int(k.episode)),
			)
			return m.mismatchError(
				"two episodes name the same part of it",
				"frames of its own",
				got,
			)
		}
	}
	return nil
}
