package live

import (
	"context"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// dataset presents the buffers of a Live as a dataset of one episode, whose rows are the samples by
// timestamp. Only the observer reads it, so its rows change only between observations.
type dataset struct {
	info    robocache.Info
	offered robocache.Capabilities
	streams map[string]*streamBuffer
	isReady bool // false while the observer is made: then each stream has two rows without values
	task    string
	ticks   [1]int64 // time of the only row: that of the observation
}

// initialTimes are the timestamps of each stream while the observer is made.
var initialTimes = []int64{0, 1e9}

func newDataset(streams []*streamBuffer) *dataset {
	d := &dataset{streams: map[string]*streamBuffer{}}
	d.info = robocache.Info{
		URI:      "live",
		Format:   "live",
		Clock:    "live",
		Episodes: 1,
		Frames:   int64(len(initialTimes)),
		Tasks:    []robocache.Task{{}},
	}
	for _, s := range streams {
		d.streams[s.Key] = s
		if s.Key == "task" {
			continue
		}
		f := s.Feature
		f.Clock = s.Key
		d.info.Features = append(d.info.Features, f)
	}
	d.offered = robocache.Capabilities{
		Clocks:       func(string) []string { return []string{"header", "log"} },
		TimesBy:      d.timesBy,
		GatherRagged: d.gatherRagged,
		Valid:        d.valid,
	}
	return d
}

func (d *dataset) Info() *robocache.Info                 { return &d.info }
func (d *dataset) Len(int) int                           { return len(initialTimes) }
func (d *dataset) Capabilities() *robocache.Capabilities { return &d.offered }
func (d *dataset) Close() error                          { return nil }

func (d *dataset) Episode(context.Context, int) (robocache.Episode, error) {
	return robocache.Episode{Length: len(initialTimes)}, nil
}

func (d *dataset) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

// Times returns the timestamps of the samples of a stream. The caller must not change them.
func (d *dataset) Times(_ context.Context, _ int, key string) ([]int64, error) {
	s := d.streams[key]
	switch {
	case !d.isReady:
		return initialTimes, nil
	case s == nil || s.Key == "task":
		return d.ticks[:], nil
	}
	return s.stamps, nil
}

// timesBy returns when the samples arrived for the clock "log".
func (d *dataset) timesBy(ctx context.Context, episode int, key, clock string) ([]int64, error) {
	if s := d.streams[key]; s != nil && clock == "log" && d.isReady {
		return s.arrivals, nil
	}
	return d.Times(ctx, episode, key)
}

// noSample is the sample of all rows of a stream that has none. Its rows are masked.
var noSample = &sample{isMissing: true}

// sampleOf returns the sample of a row, or an error that the caller must return.
func (d *dataset) sampleOf(key string, r robocache.Row) (*sample, error) {
	s := d.streams[key]
	if s != nil && len(s.samples) == 0 {
		return noSample, nil
	}
	if s == nil || r.Index < 0 || r.Index >= len(s.samples) {
		return nil, robocache.NewError(
			robocache.ErrInternal,
			"live",
			robocache.Where{
				"stream": key,
				"row":    r.Index,
			},
			"an observation reads a row that is gone",
		)
	}
	return s.samples[r.Index], nil
}

func (d *dataset) Gather(_ context.Context, key string, rows []robocache.Row, dst []byte) error {
	size := d.streams[key].RowBytes()
	for i, r := range rows {
		s, err := d.sampleOf(key, r)
		if err != nil {
			return err
		}
		if s.isMissing {
			clear(dst[i*size : (i+1)*size])
			continue
		}
		copy(dst[i*size:(i+1)*size], s.data)
	}
	return nil
}

func (d *dataset) gatherRagged(
	_ context.Context, key string, rows []robocache.Row,
) (data []byte, counts []int, err error) {
	for _, r := range rows {
		s, err := d.sampleOf(key, r)
		if err != nil {
			return nil, nil, err
		}
		data, counts = append(data, s.data...), append(counts, s.count)
	}
	return data, counts, nil
}

func (d *dataset) valid(
	_ context.Context, key string, rows []robocache.Row, valid []uint8,
) error {
	for i, r := range rows {
		s, err := d.sampleOf(key, r)
		if err != nil {
			return err
		}
		valid[i] = 1
		if s.isMissing {
			valid[i] = 0
		}
	}
	return nil
}

func (d *dataset) Text(_ context.Context, key string, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	for i, r := range rows {
		if key == "task" {
			out[i] = d.task
			continue
		}
		s, err := d.sampleOf(key, r)
		if err != nil {
			return nil, err
		}
		out[i] = s.text
	}
	return out, nil
}

func (d *dataset) Frames(
	_ context.Context, key string, rows []robocache.Row, out []robocache.FrameRef,
) error {
	for i, r := range rows {
		if !d.isReady {
			out[i] = robocache.FrameRef{Missing: true}
			continue
		}
		s, err := d.sampleOf(key, r)
		if err != nil {
			return err
		}
		out[i] = s.still
		out[i].Missing = s.isMissing
	}
	return nil
}

// Planes returns the planes of a frame of video.
func (d *dataset) Planes(
	key string, r robocache.Row,
) (info video.PlaneInfo, planes []byte, ok bool) {
	s, err := d.sampleOf(key, r)
	if err != nil || !s.hasPlanes {
		return info, nil, false
	}
	return s.planes, s.data, true
}

// checkFrame rejects a frame whose size the observation cannot take.
func (s *streamBuffer) checkFrame(width, height int, resizes bool) error {
	if width <= 0 || height <= 0 || width > 1<<15 || height > 1<<15 {
		return robocache.Malformed("live", nil, "a frame of %d×%d", width, height)
	}
	if resizes || s.Width == 0 || s.Width == width && s.Height == height {
		return nil
	}
	return robocache.Malformed("live", nil, "a frame of another size").
		Expected(fmt.Sprintf("%d×%d", s.Width, s.Height), fmt.Sprintf("%d×%d", width, height)).
		WithHint("The policy was trained on frames of that size. A contract with image_size takes " +
			"any size.")
}
