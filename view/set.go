package view

import (
	"context"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/internal/guard"
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

	mu     sync.Mutex
	lines  map[int]*timelines
	used   []int // episodes of lines, oldest first
	held   int64
	views  []*view // alignments, oldest first
	listed listing
	found  diagnosis
}

type view struct {
	hz   string
	e    int
	once sync.Once
	set  *set
	err  error
}

func newSet(number int, ds robocache.Dataset) *set {
	x := &set{number: number, ds: ds, info: ds.Info(), library: video.LibraryOf(ds), id: strconv.Itoa(number), lines: map[int]*timelines{}}
	x.listed.Length = make([]int, x.info.Episodes)
	x.found.state = "no"
	return x
}

// remote says that reads wait for a network.
func (x *set) remote() bool {
	_, local := store.LocalPath(x.info.URI)
	return !local
}

// timeline is when a stream of an episode has rows.
type timeline struct {
	rows     int
	times    []int64 // as recorded, made to ascend; where nothing is known of time, a second a row
	timeless bool
	problem  string
}

// timelines are the streams of an episode, in the order of Info.Features.
type timelines struct {
	start   int64 // the first timestamp of any stream
	end     int64
	streams []*timeline
	bytes   int64
}

// timeline gives the rows of one stream.
func (x *set) timeline(ctx context.Context, e int, f *robocache.Feature) (*timeline, error) {
	all, err := x.timelines(ctx, e)
	if err != nil {
		return nil, err
	}
	for i := range x.info.Features {
		if x.info.Features[i].Key == f.Key {
			return all.streams[i], nil
		}
	}
	return x.read(ctx, e, f), nil // the task
}

// timelines gives the rows of all streams of an episode. A stream that cannot be read has a problem and no rows.
func (x *set) timelines(ctx context.Context, e int) (_ *timelines, err error) {
	defer guard.Malformed("view", &err)
	x.mu.Lock()
	all := x.lines[e]
	x.mu.Unlock()
	if all != nil {
		return all, nil
	}
	all = &timelines{start: math.MaxInt64, end: math.MinInt64}
	clocks := map[string]*timeline{} // streams of one clock have one slice
	for pass := range 2 {            // a value that was published once bounds nothing, unless there is nothing else
		for i := range x.info.Features {
			f := &x.info.Features[i]
			if pass == 0 {
				l := clocks[f.Clock]
				if l == nil || l.problem != "" {
					l = x.read(ctx, e, f)
					guard.Check(ctx.Err())
					clocks[f.Clock] = l
					all.bytes += int64(8 * len(l.times))
				}
				all.streams = append(all.streams, l)
			}
			if l := all.streams[i]; len(l.times) > 0 && f.Latched == (pass == 1) {
				all.start, all.end = min(all.start, l.times[0]), max(all.end, l.times[len(l.times)-1])
			}
		}
		if all.end >= all.start {
			break
		}
	}
	if all.end < all.start {
		all.start, all.end = 0, 0
	}
	if x.source != nil { // an alignment is shown on the time of what it was made of
		own := guard.Must(x.source.timelines(ctx, e))
		all.start, all.end = own.start, own.end
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lines[e] == nil {
		x.lines[e], x.used, x.held = all, append(x.used, e), x.held+all.bytes
		for x.held > timelineBudget && len(x.used) > 1 {
			x.held -= x.lines[x.used[0]].bytes
			delete(x.lines, x.used[0])
			x.used = x.used[1:]
		}
	}
	return all, nil
}

// read asks the dataset when a stream has rows.
func (x *set) read(ctx context.Context, e int, f *robocache.Feature) *timeline {
	l := &timeline{}
	key := f.Key
	if key == "task" {
		key = ""
	}
	times, err := x.ds.Times(ctx, e, key)
	if err != nil {
		if l.rows, l.problem = 0, err.Error(); x.info.FPS.Zero() {
			if n, err := robocache.RowsIn(ctx, x.ds, e, f); err == nil && n <= timelineBudget/8 {
				l.rows, l.timeless, l.problem = n, true, ""
				l.times = align.Uniform(0, int64(n-1)*1e9, robocache.Rate{Num: 1, Den: 1})
			}
		}
		return l
	}
	l.rows, l.times = len(times), times
	for i := 1; i < len(times); i++ {
		if times[i] < l.times[i-1] {
			if l.problem == "" {
				l.problem = "timestamps go back at row " + strconv.Itoa(i) + ": such rows are shown at the time of the row before"
				l.times = slices.Clone(times)
			}
			l.times[i] = l.times[i-1]
		}
	}
	return l
}

// aligned gives an episode as the rows that an alignment at a rate makes of it.
func (x *set) aligned(ctx context.Context, e int, hz string) (*set, error) {
	x.mu.Lock()
	at := slices.IndexFunc(x.views, func(v *view) bool { return v.e == e && v.hz == hz })
	var v *view
	if at >= 0 {
		v = x.views[at]
		x.views = append(slices.Delete(x.views, at, at+1), v)
	} else {
		v = &view{e: e, hz: hz}
		x.views = append(x.views, v)
		x.views = x.views[max(0, len(x.views)-maxViews):]
	}
	x.mu.Unlock()
	v.once.Do(func() {
		v.err = guard.Try(func() {
			rate := guard.Must(robocache.RateOf(hz))
			guard.Check(robocache.CheckGrid(ctx, x.ds, rate))
			cfg := align.Config{}
			if x.align != nil {
				cfg = *x.align
			}
			cfg.HZ = rate
			// As convert makes them.
			seen := guard.Must(align.View(ctx, x.ds, cfg, align.ViewOptions{Rhythm: true, Episodes: []int{e}}))
			v.set = newSet(x.number, seen)
			v.set.id, v.set.source = x.id+"@"+hz, x
		})
	})
	if v.err != nil {
		x.mu.Lock()
		x.views = slices.DeleteFunc(x.views, func(o *view) bool { return o == v })
		x.mu.Unlock()
	}
	return v.set, v.err
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

// episode answers what is known of an episode.
func (s *Server) episode(q *request) error {
	ctx := q.Context()
	all := guard.Must(q.set.timelines(ctx, q.e))
	out := struct {
		Episode any      `json:"episode"`
		Start   string   `json:"start_ns"` // as recorded: beyond what a double holds
		End     int64    `json:"duration_ns"`
		Streams []stream `json:"streams"`
		Problem string   `json:"problem,omitempty"`
	}{Start: strconv.FormatInt(all.start, 10), End: all.end - all.start, Streams: []stream{}}
	ep, err := q.base.ds.Episode(ctx, q.e)
	if out.Episode = ep; err != nil {
		out.Problem = err.Error()
	}
	clocks := map[*timeline]int{}
	for i, l := range all.streams {
		f := &q.set.info.Features[i]
		if _, ok := clocks[l]; !ok {
			clocks[l] = len(clocks)
		}
		st := stream{Key: f.Key, Kind: f.Kind, Rows: l.rows, Clock: clocks[l], Timeless: l.timeless, Problem: l.problem}
		if n := len(l.times); n > 0 {
			st.First, st.Last = l.times[0]-all.start, l.times[n-1]-all.start
		}
		if st.Gap = longest(f, l); st.Gap == math.MaxInt64 {
			st.Gap = 0
		}
		out.Streams = append(out.Streams, st)
	}
	return q.json(out)
}

// longest is the longest step between rows that is no gap.
func longest(f *robocache.Feature, l *timeline) int64 {
	if step := robocache.LongestStep(l.times); step > 0 && !f.Latched && !l.timeless {
		return step
	}
	return math.MaxInt64
}

// feature is what the page knows of a stream of the dataset.
type feature struct {
	*robocache.Feature
	ChannelNames []string `json:"channel_names,omitempty"`
	Ragged       bool     `json:"ragged,omitempty"`
	DepthIn      string   `json:"depth_in,omitempty"`
}

// describe lists the streams of the dataset.
func (x *set) describe() []feature {
	out := []feature{}
	for i := range x.info.Features {
		f := &x.info.Features[i]
		d := feature{Feature: f, Ragged: f.Ragged(), DepthIn: f.DepthUnit()}
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
		out.Sets = append(out.Sets, dataset{robocache.Redact(x.info.URI), x.info.Format, x.info.Version, x.info.FPS.Float(), x.info.Episodes, x.info.Frames, x.describe()})
	}
	return q.json(out)
}
