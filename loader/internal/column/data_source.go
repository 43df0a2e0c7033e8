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

// DataSource is a compiled dataset, as the columns of a batch read it. It is immutable after
// compilation. Safe for concurrent use.
type DataSource struct {
	Dataset robocache.Dataset
	Index   int             // position in the mixture
	Place   robocache.Where // position, URI and name in a mixture; nil without a mixture
	Columns []*Column
	Windows []Window
	Table   *order.Table // its selected episodes and their samples
	clocks
	numbering
	placement
	ReadRules
	Resources *Resources
}

// clocks states the times of samples and of the rows of streams.
type clocks struct {
	Timebase   Timebase
	Timestamps *Timestamps // of streams, for timelines and tolerance checks
	Arrivals   *Timestamps // align.Arrivals of causal streams
	// VideoStart is the dataset's capability; nil if it has none.
	VideoStart  func(ctx context.Context, episode int, key string) (ns int64, ok bool, err error)
	EpisodeRows map[int]int    // rows of each episode, if the anchor stream has a separate clock
	Rate        robocache.Rate // of the grid
	// Tick is the only sample of a source that changes between samples; nil: samples are those of
	// Table.
	Tick *Tick
}

// Tick is the time of an observation that is made now, and of the first one, in ns.
type Tick struct{ Time, First int64 }

// numbering states how samples are numbered.
type numbering struct {
	// rows before each episode, if sample numbers are dataset rows and "index" is requested
	RowsBefore   []int64
	SampleOffset int64 // number of its first sample among those of all sources
}

// placement maps a source's entries to those of the batch.
type placement struct {
	layout.Schema                // schema of the source alone
	BatchSchema   *layout.Schema // schema of the batch
	TensorSlots   []int          // tensor of the batch for each tensor of the source
	TextSlots     []int          // text column of the batch for each text column of the source
	AbsentTensors []int          // tensors of the batch that the source lacks
	PaddedRows    map[string]*layout.PaddedRow
}

// ReadRules states which data a source rejects, and the random draws of its augmentation.
type ReadRules struct {
	// maximum difference in seconds between times of a frame and its row; nil: not checked
	Tolerance  *float64
	SkipBad    bool        // episodes that cannot be read are skipped
	FiniteRows *FiniteRows // nil: NaN and infinite numbers are allowed
	RefuseNaN  bool        // an episode with NaN or infinite numbers is bad
	Seed       int64
	Flip       float64 // probability that images are mirrored
}

// Resources holds what a pipeline provides to the columns of all sources, and counters of their
// work.
type Resources struct {
	Budget        int64         // bytes of batches in flight
	DeviceBuffers *buffers.Pool // memory of the device that holds frames; nil: no device
	BlankFrames   atomic.Int64  // frames that are zero because their row has none
	StillsDecoded atomic.Int64  // still images that were decoded
	TakeCore      func() func() // blocks until a core is free; the result releases it
}

// Where returns the episode, stream and row of a value, for errors.
func (src *DataSource) Where(c *Column, r robocache.Row) robocache.Where {
	w := robocache.Where{
		"episode": src.Dataset.Info().EpisodeIndex(r.Episode),
		"stream":  c.StreamKey(),
	}
	maps.Copy(w, src.Place)
	if r.Index >= 0 {
		w["row"] = r.Index
	}
	return w
}

// missingFrameError returns the error of a row without a frame.
func (src *DataSource) missingFrameError(
	c *Column,
	r robocache.Row,
	ref *robocache.FrameRef,
) error {
	e := robocache.Malformed("loader", src.Where(c, r), "the row has no frame").
		WithHint("%s skips such episodes; %s lists them",
			robocache.Option("on_bad_episode", "skip"),
			robocache.Command("doctor %s", src.redactedURI()))
	if !ref.Missing {
		e.Class, e.Hint = robocache.ErrUnsupported, ""
		e.Msg = "a frame of a video stream that is in no video file"
	}
	return e
}

// WithPlace adds the source's position in the mixture to an error. An error of a damaged video also
// gets a hint to "doctor", which lists all damage.
func (src *DataSource) WithPlace(err error) error {
	err = src.withDoctor(err)
	if src.Place == nil {
		return err
	}
	return robocache.At(err, src.Place)
}

// withDoctor adds a hint to "doctor" to an error of a damaged video. It returns other errors
// unchanged.
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
	hinted.Hint += robocache.Command("doctor --decode %s", src.redactedURI()) +
		" lists all damage of the dataset"
	return &hinted
}

// redactedURI returns the URI of the dataset without secrets.
func (src *DataSource) redactedURI() string { return robocache.Redact(src.Dataset.Info().URI) }

// Column returns the column of a key, or nil.
func (src *DataSource) Column(key string) *Column {
	for _, c := range src.Columns {
		if c.Key == key {
			return c
		}
	}
	return nil
}

// rowCount returns the number of rows of an episode on the timebase.
func (src *DataSource) rowCount(episode int) int {
	if src.Timebase.Key == "" {
		return src.Dataset.Len(episode)
	}
	return src.EpisodeRows[episode]
}

// sampleTime returns the time of a sample in ns. place is the position of its episode in the table,
// index its row in the episode.
func (src *DataSource) sampleTime(ctx context.Context, place int32, index int) (int64, error) {
	if src.Tick != nil {
		return src.Tick.Time, nil
	}
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

// SampleTime returns the time of a sample in ns. sample is its number in the source.
func (src *DataSource) SampleTime(ctx context.Context, sample int64) (int64, error) {
	r, place := src.Table.Row(sample)
	return src.sampleTime(ctx, int32(place), r.Index)
}

// firstTick returns the time of the first sample of an episode in ns.
func (src *DataSource) firstTick(ctx context.Context, place int32) (int64, error) {
	if src.Tick != nil {
		return src.Tick.First, nil
	}
	return src.sampleTime(ctx, place, 0)
}

// rowLength returns the time from a sample to the next one. For the last sample it returns the time
// from the one before.
func (src *DataSource) rowLength(ctx context.Context, place int32, index int) (int64, error) {
	t, err := src.Timestamps.OfStream(ctx, src.Table.Episode(int(place)), src.Timebase.Key)
	if err != nil || len(t) < 2 {
		return 0, err
	}
	index = min(index, len(t)-2)
	return t[index+1] - t[index], nil
}

// DatasetKey returns the dataset's own name of a key of the batch.
func (src *DataSource) DatasetKey(key string) string {
	if k, ok := robocache.As[renamedKeys](src.Dataset); ok {
		return k.DatasetKey(key)
	}
	return key
}

// renamedKeys is implemented by datasets whose keys a mixture renames.
type renamedKeys interface{ DatasetKey(key string) string }
