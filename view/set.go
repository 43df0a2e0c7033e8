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

// viewedSet is a dataset, or an alignment of one of its episodes, with cached data about it.
type viewedSet struct {
	number  int
	ds      robocache.Dataset
	info    *robocache.Info
	library *video.Library
	cacheID string     // prefix of keys in the frame cache; identifies the dataset or the alignment
	source  *viewedSet // set from which an alignment was made
	align   *align.Config

	lines       *lru.Cache[int, *inspect.Timelines] // timelines by episode
	views       *lru.Cache[viewKey, *viewedSet]     // alignments
	episodeList listing
	diagnosis   diagnosis
	quality     qualityTable
}

type viewKey struct {
	e  int
	hz string
}

func newSet(number int, ds robocache.Dataset) *viewedSet {
	x := &viewedSet{
		number:  number,
		ds:      ds,
		info:    ds.Info(),
		library: video.LibraryOf(ds),
		cacheID: strconv.Itoa(number),
		lines:   lru.New[int, *inspect.Timelines](timelineBudget),
		views:   lru.New[viewKey, *viewedSet](maxViews),
	}
	x.episodeList.Length = make([]int, x.info.Episodes)
	x.diagnosis.state, x.quality.state = "no", "no"
	return x
}

// isRemote reports whether the dataset is read over a network.
func (x *viewedSet) isRemote() bool {
	_, local := store.LocalPath(x.info.URI)
	return !local
}

// timeline returns the timeline of one stream.
func (x *viewedSet) timeline(
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

// timelines returns the timelines of all streams of an episode.
func (x *viewedSet) timelines(ctx context.Context, e int) (*inspect.Timelines, error) {
	return x.lines.Get(ctx, e, func() (all *inspect.Timelines, n int64, err error) {
		if all, err = inspect.TimelinesOf(ctx, x.ds, e); err != nil {
			return all, n, err
		}
		if x.source != nil { // an alignment is shown on the time axis of its source
			own, err := x.source.timelines(ctx, e)
			if err != nil {
				return all, n, err
			}
			all.Start, all.End = own.Start, own.End
		}
		return all, min(all.Bytes, timelineBudget), nil // a single entry may exceed the budget
	})
}

// aligned returns an episode resampled to a rate.
func (x *viewedSet) aligned(ctx context.Context, e int, hz string) (*viewedSet, error) {
	return x.views.Get(ctx, viewKey{e, hz}, func() (v *viewedSet, n int64, err error) {
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
		// The options are those of convert.
		view, err := align.View(ctx, x.ds, cfg, align.ViewOptions{Rhythm: true, Episodes: []int{e}})
		if err != nil {
			return v, n, err
		}
		v = newSet(x.number, view)
		v.cacheID = x.cacheID + "@" + hz
		v.source = x
		return v, 1, nil
	})
}

// episodeStream describes a stream of an episode for the page.
type episodeStream struct {
	Key      string         `json:"key"`
	Kind     robocache.Kind `json:"kind"`
	Rows     int            `json:"rows"`
	First    int64          `json:"first_ns"` // relative to the start of the episode
	Last     int64          `json:"last_ns"`
	Clock    int            `json:"clock"` // streams with equal numbers have the same timestamps
	Gap      int64          `json:"gap_ns,omitempty"`
	Timeless bool           `json:"timeless,omitempty"`
	Problem  string         `json:"problem,omitempty"`
}

// serveEpisode answers the description of an episode and the timestamps of each clock.
func (s *Server) serveEpisode(q *request) error {
	ctx := q.Context()
	all, err := q.set.timelines(ctx, q.episode)
	if err != nil {
		return err
	}
	out := struct {
		Episode any `json:"episode"`
		// as recorded; a string because a double cannot hold it
		Start   string          `json:"start_ns"`
		End     int64           `json:"duration_ns"`
		Streams []episodeStream `json:"streams"`
		Points  []int           `json:"points"` // number of timestamps of each clock
		Problem string          `json:"problem,omitempty"`
	}{
		Start:   strconv.FormatInt(all.Start, 10),
		End:     all.End - all.Start,
		Streams: []episodeStream{},
		Points:  []int{},
	}
	ep, err := q.base.ds.Episode(ctx, q.episode)
	out.Episode = ep
	if robocache.IsFatal(err) {
		return err
	}
	if err != nil {
		out.Problem = err.Error()
	}
	clocks := map[*inspect.Timeline]int{}
	times := [][]float64{}
	for i, l := range all.Streams {
		f := &q.set.info.Features[i]
		if _, ok := clocks[l]; !ok {
			clocks[l] = len(clocks)
			t := make([]float64, len(l.Times))
			for k := range t {
				t[k] = float64(l.Times[k] - all.Start)
			}
			times = append(times, t)
			out.Points = append(out.Points, len(t))
		}
		st := episodeStream{
			Key:      f.Key,
			Kind:     f.Kind,
			Rows:     l.Rows,
			Clock:    clocks[l],
			Timeless: l.Timeless,
			Problem:  l.Problem,
		}
		if n := len(l.Times); n > 0 {
			st.First = l.Times[0] - all.Start
			st.Last = l.Times[n-1] - all.Start
		}
		if st.Gap = l.LongestStep(f); st.Gap == math.MaxInt64 {
			st.Gap = 0
		}
		out.Streams = append(out.Streams, st)
	}
	return q.writeBinary(&out, times...)
}

// streamFeature describes a stream of the dataset for the page.
type streamFeature struct {
	*robocache.Feature
	ChannelNames []string `json:"channel_names,omitempty"`
	Ragged       bool     `json:"ragged,omitempty"`
}

// streamFeatures lists the streams of the dataset.
func (x *viewedSet) streamFeatures() []streamFeature {
	out := []streamFeature{}
	for i := range x.info.Features {
		f := &x.info.Features[i]
		d := streamFeature{Feature: f, Ragged: f.Ragged()}
		if f.Kind == robocache.KindNumeric && !f.Ragged() && f.Elements() <= 1<<16 {
			d.ChannelNames = inspect.ChannelNames(f)
		}
		out = append(out, d)
	}
	return out
}

// serveInfo answers the description of the datasets.
func (s *Server) serveInfo(q *request) error {
	type dataset struct {
		URI      string  `json:"uri"`
		Format   string  `json:"format"`
		Version  string  `json:"version"`
		FPS      float64 `json:"fps"`
		Episodes int     `json:"num_episodes"`
		// by position; absent if they are 0, 1, 2 and so on
		Indices  []int64         `json:"episode_index,omitempty"`
		Frames   int64           `json:"num_frames"`
		Features []streamFeature `json:"features"`
	}
	out := struct {
		Sets  []dataset `json:"datasets"`
		HZ    string    `json:"hz,omitempty"`
		Flags bool      `json:"flags_file"`
		Notes bool      `json:"annotations_file"`
	}{Flags: s.opt.Flags != "", Notes: s.opt.Annotations != ""}
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
				x.streamFeatures(),
			},
		)
	}
	return q.writeJSON(out)
}

// serveDataset answers the summary of a dataset. It leaves out statistics, and features
// and tasks, which the page reads by other requests.
func (s *Server) serveDataset(q *request) error {
	r, err := inspect.Dataset(q.Context(), q.base.ds)
	if err != nil {
		return err
	}
	r.URI = robocache.Redact(r.URI)
	r.Stats, r.Features, r.Tasks = nil, nil, nil
	return q.writeJSON(r)
}
