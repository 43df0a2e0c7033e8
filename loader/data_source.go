package loader

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// dataSource is a compiled dataset, as the columns of a batch read it. It does not change once it is compiled.
type dataSource struct {
	ds      robocache.Dataset
	index   int             // among the sources of a mixture
	place   robocache.Where // position, URI and name of a mixture's source; nil without a mixture
	columns []*column
	windows []window
	table   *order.Table // of its samples
	clocks
	numbering
	placement
	rules
	room
}

// clocks states when samples and the rows of streams are.
type clocks struct {
	timebase   timebase
	timestamps *timestamps            // of streams, for timelines and tolerance checks
	starts     robocache.VideoStarter // nil: the dataset does not say where its episodes lie in the files
	long       map[int]int            // rows of the episodes, if an anchor has a clock of its own
	rate       robocache.Rate         // of the grid
}

// numbering states by what numbers samples are counted.
type numbering struct {
	before []int64 // rows of the episodes before each, if samples are the dataset's rows and their numbers are asked for
	offset int64   // number of its first sample among those of all sources
}

// placement states where a source's values go in a batch.
type placement struct {
	schema         // what it gives alone
	whole  *schema // what the batch holds
	slots  []int   // of its tensors → of the batch
	texts  []int
	absent []int // tensors of the batch that this source has nothing for
	pads   map[string]*padded
}

// rules states what a source refuses, and the draws of its augmentation.
type rules struct {
	tolerance *float64    // seconds between a frame's time and its row's; nil: not compared
	skipBad   bool        // episodes that cannot be read are left out
	finite    *finiteRows // nil: numbers that are not finite are allowed
	refuseNaN bool        // an episode with such a number is bad
	seed      int64
	flip      float64 // probability that images are mirrored
}

// room states what memory a source's columns may take, and counts what they make.
type room struct {
	budget int64         // bytes of batches in flight
	there  *buffers.Pool // memory of the device that makes frames; nil: none does
	blanks *atomic.Int64 // frames that are zero because there is none
	stills *atomic.Int64 // still images that were decoded
}

// where returns the place of a frame or value.
func (src *dataSource) where(c *column, r robocache.Row) robocache.Where {
	w := robocache.Where{"episode": src.ds.Info().EpisodeIndex(r.Episode), "stream": c.key}
	maps.Copy(w, src.place)
	if r.Index >= 0 {
		w["row"] = r.Index
	}
	return w
}

// missing returns the error of a row without a frame.
func (src *dataSource) missing(c *column, r robocache.Row, ref *robocache.FrameRef) error {
	e := robocache.Malformed("loader", src.where(c, r), "the row has no frame").
		WithHint("%s leaves such episodes out; %s lists them", robocache.Option("on_bad_episode", "skip"),
			robocache.Command("doctor %s", src.uri()))
	if !ref.Missing {
		e.Class, e.Msg, e.Hint = robocache.ErrUnsupported, "a frame of a video stream that is in no video file", ""
	}
	return e
}

// withPlace adds the place of the source to an error, and the command that lists all damage to that
// of a damaged video.
func (src *dataSource) withPlace(err error) error {
	err = src.withDoctor(err)
	if src.place == nil {
		return err
	}
	return robocache.At(err, src.place)
}

// withDoctor adds the hint to an error of a damaged video. It returns other errors as they are.
func (src *dataSource) withDoctor(err error) error {
	var e *robocache.Error
	if !errors.As(err, &e) || !robocache.Bad(err) || !errors.Is(err, robocache.ErrMalformed) {
		return err
	}
	stream, _ := e.Where["stream"].(string)
	if c := src.column(stream); c == nil || !c.isVideo() || strings.Contains(e.Hint, "doctor") {
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
func (src *dataSource) uri() string { return robocache.Redact(src.ds.Info().URI) }

// column finds a column by its key; nil if there is none.
func (src *dataSource) column(key string) *column {
	for _, c := range src.columns {
		if c.key == key {
			return c
		}
	}
	return nil
}

// rowsOn returns how many rows an episode has on the timebase.
func (src *dataSource) rowsOn(episode int) int {
	if src.timebase.key == "" {
		return src.ds.Len(episode)
	}
	return src.long[episode]
}

// at returns the time of a sample: place is its episode's in the table, index its row there.
func (src *dataSource) at(ctx context.Context, place int32, index int) (int64, error) {
	if src.timebase.grid {
		return src.table.Start[place] + src.rate.Nanos(int64(index)), nil
	}
	episode := src.table.Episode(int(place))
	t, err := src.timestamps.of(ctx, episode, src.timebase.key)
	if err == nil && index >= len(t) {
		where := robocache.Where{"episode": src.ds.Info().EpisodeIndex(episode), "row": index}
		err = robocache.Malformed("loader", where, "a row without a timestamp")
	}
	if err != nil {
		return 0, &episodeError{episode, err}
	}
	return t[index] + src.timebase.shift, nil
}

// rowLength returns the time up to the next sample, of the last one the time since the one before it.
func (src *dataSource) rowLength(ctx context.Context, place int32, index int) (int64, error) {
	t, err := src.timestamps.of(ctx, src.table.Episode(int(place)), src.timebase.key)
	if err != nil || len(t) < 2 {
		return 0, err
	}
	index = min(index, len(t)-2)
	return t[index+1] - t[index], nil
}

// ownKey returns the dataset's own name of a key.
func (src *dataSource) ownKey(key string) string {
	if k, ok := robocache.As[keyed](src.ds); ok {
		return k.key(key)
	}
	return key
}

// keyed is a dataset under other keys.
type keyed interface{ key(k string) string }
