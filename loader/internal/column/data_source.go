package column

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// DataSource is a compiled dataset, as the columns of a batch read it. It does not change once it is compiled.
type DataSource struct {
	Dataset robocache.Dataset
	Index   int             // among the sources of a mixture
	Place   robocache.Where // position, URI and name of a mixture's source; nil without a mixture
	Columns []*Column
	Windows []Window
	Table   *order.Table // of its samples
	clocks
	numbering
	placement
	ReadRules
	Resources *Resources
}

// clocks states when samples and the rows of streams are.
type clocks struct {
	Timebase   Timebase
	Timestamps *Timestamps // of streams, for timelines and tolerance checks
	// VideoStart is the dataset's capability; nil if it has none.
	VideoStart  func(ctx context.Context, episode int, key string) (ns int64, ok bool, err error)
	EpisodeRows map[int]int    // rows of the episodes, if an anchor has a clock of its own
	Rate        robocache.Rate // of the grid
}

// numbering states by what numbers samples are counted.
type numbering struct {
	RowsBefore   []int64 // rows of the episodes before each, if samples are the dataset's rows and their numbers are asked for
	SampleOffset int64   // number of its first sample among those of all sources
}

// placement states where a source's values go in a batch.
type placement struct {
	layout.Schema                // what it gives alone
	BatchSchema   *layout.Schema // what the batch holds
	TensorSlots   []int          // of its tensors → of the batch
	TextSlots     []int
	AbsentTensors []int // tensors of the batch that this source has nothing for
	PaddedRows    map[string]*layout.PaddedRow
}

// ReadRules states what a source refuses, and the draws of its augmentation.
type ReadRules struct {
	Tolerance  *float64    // seconds between a frame's time and its row's; nil: not compared
	SkipBad    bool        // episodes that cannot be read are left out
	FiniteRows *FiniteRows // nil: numbers that are not finite are allowed
	RefuseNaN  bool        // an episode with such a number is bad
	Seed       int64
	Flip       float64 // probability that images are mirrored
}

// Resources is what a pipeline grants to the columns of all sources, and what it counts of their work.
type Resources struct {
	Budget        int64         // bytes of batches in flight
	DeviceBuffers *buffers.Pool // memory of the device that holds frames; nil: no device does
	BlankFrames   atomic.Int64  // frames that are zero because the row has none
	StillsDecoded atomic.Int64  // still images that were decoded
	TakeCore      func() func() // takes a core; the function that it returns gives the core back
}

// Where returns the place of a frame or value.
func (src *DataSource) Where(c *Column, r robocache.Row) robocache.Where {
	w := robocache.Where{"episode": src.Dataset.Info().EpisodeIndex(r.Episode), "stream": c.Key}
	maps.Copy(w, src.Place)
	if r.Index >= 0 {
		w["row"] = r.Index
	}
	return w
}

// missing returns the error of a row without a frame.
func (src *DataSource) missing(c *Column, r robocache.Row, ref *robocache.FrameRef) error {
	e := robocache.Malformed("loader", src.Where(c, r), "the row has no frame").
		WithHint("%s leaves such episodes out; %s lists them", robocache.Option("on_bad_episode", "skip"),
			robocache.Command("doctor %s", src.uri()))
	if !ref.Missing {
		e.Class, e.Msg, e.Hint = robocache.ErrUnsupported, "a frame of a video stream that is in no video file", ""
	}
	return e
}

// WithPlace adds the place of the source to an error, and the command that lists all damage to that
// of a damaged video.
func (src *DataSource) WithPlace(err error) error {
	err = src.withDoctor(err)
	if src.Place == nil {
		return err
	}
	return robocache.At(err, src.Place)
}

// withDoctor adds the hint to an error of a damaged video. It returns other errors as they are.
func (src *DataSource) withDoctor(err error) error {
	var e *robocache.Error
	if !errors.As(err, &e) || !robocache.Bad(err) || !errors.Is(err, robocache.ErrMalformed) {
		return err
	}
	stream, _ := e.Where["stream"].(string)
	if c := src.Column(stream); c == nil || !c.IsVideo() || strings.Contains(e.Hint, "doctor") {
		return err
	}
	hinted := *e
	if hinted.Hint != "" {
		hinted.Hint += "; "
	}
	hinted.Hint += robocache.Command("doctor --decode %s", src.uri()) + " lists all damage of the dataset"
	return &hinted
}

// uri returns where the dataset of the source lies, without secrets.
func (src *DataSource) uri() string { return robocache.Redact(src.Dataset.Info().URI) }

// Column finds a column by its key; nil if there is none.
func (src *DataSource) Column(key string) *Column {
	for _, c := range src.Columns {
		if c.Key == key {
			return c
		}
	}
	return nil
}

// rowsOn returns how many rows an episode has on the timebase.
func (src *DataSource) rowsOn(episode int) int {
	if src.Timebase.Key == "" {
		return src.Dataset.Len(episode)
	}
	return src.EpisodeRows[episode]
}

// at returns the time of a sample: place is its episode's in the table, index its row there.
func (src *DataSource) at(ctx context.Context, place int32, index int) (int64, error) {
	if src.Timebase.IsGrid {
		return src.Table.Start[place] + src.Rate.Nanos(int64(index)), nil
	}
	episode := src.Table.Episode(int(place))
	t, err := src.Timestamps.OfStream(ctx, episode, src.Timebase.Key)
	if err == nil && index >= len(t) {
		where := robocache.Where{"episode": src.Dataset.Info().EpisodeIndex(episode), "row": index}
		err = robocache.Malformed("loader", where, "a row without a timestamp")
	}
	if err != nil {
		return 0, &episodeError{episode, err}
	}
	return t[index] + src.Timebase.Shift, nil
}

// rowLength returns the time up to the next sample, of the last one the time since the one before it.
func (src *DataSource) rowLength(ctx context.Context, place int32, index int) (int64, error) {
	t, err := src.Timestamps.OfStream(ctx, src.Table.Episode(int(place)), src.Timebase.Key)
	if err != nil || len(t) < 2 {
		return 0, err
	}
	index = min(index, len(t)-2)
	return t[index+1] - t[index], nil
}

// DatasetKey returns the dataset's own name of a key.
func (src *DataSource) DatasetKey(key string) string {
	if k, ok := robocache.As[keyed](src.Dataset); ok {
		return k.DatasetKey(key)
	}
	return key
}

// keyed is a dataset under other keys.
type keyed interface{ DatasetKey(key string) string }
