package view

import (
	"context"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// set is a dataset, or an alignment of one of its episodes, with what was learnt of it.
type set struct {
	number  int
	ds      robocache.Dataset
	info    *robocache.Info
	library *video.Library
	id      string // of frames that are kept: of the dataset or the alignment
	source  *set   // of an alignment: what it was made of
	align   *align.Config

	lines  *lru.Cache[int, *inspect.Timelines] // by episode
	views  *lru.Cache[viewKey, *set]           // alignments
	listed listing
	found  diagnosis
	moved  moves
}

type viewKey struct {
	e  int
	hz string
}

func newSet(number int, ds robocache.Dataset) *set {
	x := &set{
		number:  number,
		ds:      ds,
		info:    ds.Info(),
		library: video.LibraryOf(ds),
		id:      strconv.Itoa(number),
		lines: lru.New[int, *inspect.Timelines](
			timelineBudget,
		),
		views: lru.New[viewKey, *set](maxViews),
	}
	x.listed.Length = make([]int, x.info.Episodes)
	x.found.state, x.moved.state = "no", "no"
	return x
}

// remote says that reads wait for a network.
func (x *set) remote() bool {
	_, local := store.LocalPath(x.info.URI)
	return !local
}

// timeline gives the rows of one stream.
func (x *set) timeline(
	ctx context.Context,
	e int,
	f *robocache.Feature,
) (*inspect.Timeline, error) {
	all, err := x.timelines(ctx, e)
	if err != nil {
		return nil, err
	}
	for i := range x.info.Features {
		if x.info.Features[i].Key == f.Key {
			return all.Streams[i], nil
		}
	}
	return inspect.TimelineOf(ctx, x.ds, e, f) // the task
}

// timelines gives the rows of all streams of an episode.
func (x *set) timelines(ctx context.Context, e int) (*inspect.Timelines, error) {
	return x.lines.Get(ctx, e, func() (all *inspect.Timelines, n int64, err error) {
		if all, err = inspect.TimelinesOf(ctx, x.ds, e); err != nil {
			return all, n, err
		}
		if x.source != nil { // an alignment is shown on the time of what it was made of
			own, err := x.source.timelines(ctx, e)
			if err != nil {
				return all, n, err
			}
			all.Start, all.End = own.Start, own.End
		}
		return all, min(all.Bytes, timelineBudget), nil // the newest is kept whatever it takes
	})
}

// aligned gives an episode as the rows that an alignment at a rate makes of it.
func (x *set) aligned(ctx context.Context, e int, hz string) (*set, error) {
	return x.views.Get(ctx, viewKey{e, hz}, func() (v *set, n int64, err error) {
		rate, err := robocache.RateOf(hz)
		if err != nil {
			return v, n, err
		}
		if err := robocache.CheckGrid(ctx, x.ds, rate); err != nil {
			return v, n, err
		}
		cfg := align.Config{}
		if x.align != nil {
			cfg = *x.align
		}
		cfg.HZ = rate
		// As convert makes them.
		view, err := align.View(ctx, x.ds, cfg, align.ViewOptions{Rhythm: true, Episodes: []int{e}})
		if err != nil {
			return v, n, err
		}
		v = newSet(x.number, view)
		v.id, v.source = x.id+"@"+hz, x
		return v, 1, nil
	})
}

// stream is what the page knows of a stream of an episode.
type stream struct {
	Key      string         `json:"key"`
	Kind     robocache.Kind `json:"kind"`
	Rows     int            `json:"rows"`
	First    int64          `json:"first_ns"` // from the episode's start
	Last     int64          `json:"last_ns"`
	Clock    int            `json:"clock"` // streams of one number have the same timestamps
	Gap      int64          `json:"gap_ns,omitempty"`
	Timeless bool           `json:"timeless,omitempty"`
	Problem  string         `json:"problem,omitempty"`
}

// episode answers what is known of an episode, and the timestamps of each clock.
func (s *Server) episode(q *request) error {
	ctx := q.Context()
	all, err := q.set.timelines(ctx, q.e)
	if err != nil {
		return err
	}
	out := struct {
		Episode any      `json:"episode"`
		Start   string   `json:"start_ns"` // as recorded: beyond what a double holds
		End     int64    `json:"duration_ns"`
		Streams []stream `json:"streams"`
		Points  []int    `json:"points"` // of each clock
		Problem string   `json:"problem,omitempty"`
	}{Start: strconv.FormatInt(all.Start, 10), End: all.End - all.Start, Streams: []stream{}, Points: []int{}}
	ep, err := q.base.ds.Episode(ctx, q.e)
	out.Episode = ep
	if robocache.IsFatal(err) {
		return err
	}
	if err != nil {
		out.Problem = err.Error()
	}
	clocks, times := map[*inspect.Timeline]int{}, [][]float64{}
	for i, l := range all.Streams {
		f := &q.set.info.Features[i]
		if _, ok := clocks[l]; !ok {
			clocks[l] = len(clocks)
			t := make([]float64, len(l.Times))
			for k := range t {
				t[k] = float64(l.Times[k] - all.Start)
			}
			times, out.Points = append(times, t), append(out.Points, len(t))
		}
		st := stream{
			Key:      f.Key,
			Kind:     f.Kind,
			Rows:     l.Rows,
			Clock:    clocks[l],
			Timeless: l.Timeless,
			Problem:  l.Problem,
		}
		if n := len(l.Times); n > 0 {
			st.First, st.Last = l.Times[0]-all.Start, l.Times[n-1]-all.Start
		}
		if st.Gap = l.LongestStep(f); st.Gap == math.MaxInt64 {
			st.Gap = 0
		}
		out.Streams = append(out.Streams, st)
	}
	return q.binary(&out, times...)
}

// feature is what the page knows of a stream of the dataset.
type feature struct {
	*robocache.Feature
	ChannelNames []string `json:"channel_names,omitempty"`
	Ragged       bool     `json:"ragged,omitempty"`
}

// describe lists the streams of the dataset.
func (x *set) describe() []feature {
	out := []feature{}
	for i := range x.info.Features {
		f := &x.info.Features[i]
		d := feature{Feature: f, Ragged: f.Ragged()}
		if f.Kind == robocache.KindNumeric && !f.Ragged() && f.Elements() <= 1<<16 {
			d.ChannelNames = inspect.ChannelNames(f)
		}
		out = append(out, d)
	}
	return out
}

// info answers what is known of the datasets.
func (s *Server) info(q *request) error {
	type dataset struct {
		URI      string    `json:"uri"`
		Format   string    `json:"format"`
		Version  string    `json:"version"`
		FPS      float64   `json:"fps"`
		Episodes int       `json:"num_episodes"`
		Indices  []int64   `json:"episode_index,omitempty"` // by position; absent: 0, 1, 2 and on
		Frames   int64     `json:"num_frames"`
		Features []feature `json:"features"`
	}
	out := struct {
		Sets  []dataset `json:"datasets"`
		HZ    string    `json:"hz,omitempty"`
		Flags bool      `json:"flags_file"`
	}{Flags: s.opt.Flags != ""}
	if s.opt.Align != nil && !s.opt.Align.HZ.Zero() {
		out.HZ = s.opt.Align.HZ.String()
	}
	for _, x := range s.sets {
		out.Sets = append(
			out.Sets,
			dataset{
				robocache.Redact(x.info.URI),
				x.info.Format,
				x.info.Version,
				x.info.FPS.Float(),
				x.info.Episodes,
				x.info.NumberedEpisodes(),
				x.info.Frames,
				x.describe(),
			},
		)
	}
	return q.json(out)
}
