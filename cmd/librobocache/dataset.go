//go:build cgo

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/derive"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/mapping"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/vector"
)

// sharedDataset is an open dataset. Its handle and the maps and loaders over it use it together.
// The last user closes it.
type sharedDataset struct {
	users
	robocache.Dataset
	depth string // requested unit of depth, "m" or "mm"; "" = as stored
	// openAgain opens the dataset as it is now, for loaders that follow it.
	openAgain loader.Opener
}

func newShared(ds robocache.Dataset, depth string, openAgain loader.Opener) *sharedDataset {
	s := &sharedDataset{Dataset: ds, depth: depth, openAgain: openAgain}
	s.end = ds.Close
	s.n.Store(1)
	return s
}

// depthOf returns the unit in which a stream's depth is delivered. It is "" for other streams.
func (s *sharedDataset) depthOf(f *robocache.Feature) string {
	kept := f.DepthUnit()
	if kept == "" {
		return ""
	}
	return cmp.Or(s.depth, kept)
}

// checkGrid returns an error if rows without known times would be resampled. hz and a may be nil.
func (s *sharedDataset) checkGrid(ctx context, hz *robocache.Rate, a *align.Config) error {
	rate := robocache.Rate{}
	if hz != nil {
		rate = *hz
	} else if a != nil {
		rate = a.HZ
	}
	if err := robocache.CheckGrid(ctx, s.Dataset, rate); err != nil {
		return robocache.At(err, robocache.Where{"dataset": s.Info().URI})
	}
	return nil
}

// deliveredInfo returns the dataset's info, with the units in which depth is delivered.
func (s *sharedDataset) deliveredInfo() *robocache.Info {
	info := *s.Info()
	info.Features = slices.Clone(info.Features)
	for i := range info.Features {
		f := &info.Features[i]
		f.Unit = cmp.Or(s.depthOf(f), f.Unit)
	}
	return &info
}

type openArgs struct {
	URI          string            `json:"uri"`
	Format       string            `json:"format"`
	MemoryBudget int64             `json:"memory_budget"`
	RowsHz       robocache.Rate    `json:"rows_hz"`
	DepthUnit    string            `json:"depth_unit"`
	Map          json.RawMessage   `json:"map"` // a mapping, or the path of a mapping file
	Options      map[string]string `json:"options"`
	Split        string            `json:"split"`
	Episodes     []int             `json:"episodes"`
	FollowLinks  bool              `json:"follow_links"`
	// RecordingIndex is the path or URI of an index of recordings
	RecordingIndex string          `json:"recording_index"`
	Derived        []derive.Stream `json:"derived"`
	DeriveBudget   int64           `json:"derive_budget"`
	Growing        bool            `json:"growing"` // openAgain always opens so
}

// readMap reads a mapping, given as JSON or as the path of a file.
func readMap(b json.RawMessage) (*robocache.Mapping, error) {
	if len(b) == 0 || string(b) == "null" {
		return nil, nil
	}
	var path string
	if json.Unmarshal(b, &path) == nil {
		return mapping.Read(path)
	}
	return mapping.Parse(b)
}

type openInfo struct {
	*robocache.Info
	SplitEpisodes map[string]int `json:"split_episodes,omitempty"`
	// Indices are the episode indices by position. They are absent if they are 0, 1, 2 and so on.
	Indices []int64 `json:"episode_indices,omitempty"`
}

type openReply struct {
	Dataset int64    `json:"dataset"`
	Info    openInfo `json:"info"`
}

func openDataset(ctx context, a *openArgs) (any, error) {
	if a.DepthUnit != "" && a.DepthUnit != "m" && a.DepthUnit != "mm" {
		return nil, robocache.Misuse("open", nil, "depth_unit").Expected(`"mm" or "m"`, a.DepthUnit)
	}
	m, err := readMap(a.Map)
	if err != nil {
		return nil, err
	}
	openAgain := func(ctx context) (robocache.Dataset, error) {
		return mapping.Open(
			ctx,
			a.URI,
			robocache.OpenOptions{
				Format:       a.Format,
				MemoryBudget: a.MemoryBudget,
				HZ:           a.RowsHz,
				Map:          m,
				Options:      a.Options,
				Split:        a.Split,
				Episodes:     a.Episodes,
				FollowLinks:  a.FollowLinks,
				Growing:      a.Growing,

				RecordingIndex: a.RecordingIndex,
			},
		)
	}
	ds, err := openAgain(ctx)
	if err != nil {
		return nil, err
	}
	a.Growing = true // from now on, the dataset is opened by loaders that follow it
	if a.Derived != nil {
		derived, err := derive.Wrap(ds, a.Derived, a.DeriveBudget)
		if err != nil {
			_ = ds.Close()
			return nil, err
		}
		ds = derived
	}
	if a.Derived != nil || a.Split != "" || a.Episodes != nil {
		openAgain = func(context) (robocache.Dataset, error) {
			return nil, robocache.Unsupported("loader", nil, "%s of a dataset with derived streams, "+
				"or of a split or some episodes", robocache.Option("follow", true)).
				WithHint("Open the whole dataset, without derive.")
		}
	}
	s := newShared(ds, a.DepthUnit, openAgain)
	return newHandle(s, func(h int64) any {
		return openReply{
			h,
			openInfo{s.deliveredInfo(), ds.Info().SplitCounts(), ds.Info().NumberedEpisodes()},
		}
	}), nil
}

// episodeArgs names an episode by its position. The client knows the indices from openInfo.
type episodeArgs struct {
	Position int `json:"position"`
}

// checkPosition returns an error if there is no episode at the position.
func (s *sharedDataset) checkPosition(position int) (int, error) {
	if n := s.Info().Episodes; position < 0 || position >= n {
		return 0, robocache.Misuse(
			"episode",
			robocache.Where{"dataset": s.Info().URI, "position": position},
			"no episode at this position",
		).Expected(fmt.Sprintf("below %d", n), "")
	}
	return position, nil
}

func (s *sharedDataset) readEpisode(ctx context, a *episodeArgs) (any, error) {
	entryValue, err := s.checkPosition(a.Position)
	if err != nil {
		return nil, err
	}
	return s.Episode(ctx, entryValue)
}

type episodesReply struct {
	Index   []int64    `json:"episode_index"`
	Lengths []int      `json:"lengths"`
	Tasks   [][]string `json:"tasks"`
}

// listEpisodes returns the metadata of all episodes as columns. For a LeRobot dataset it also
// returns info.json ("of": "info") or all columns of the table of episodes ("of": "table").
func (s *sharedDataset) listEpisodes(ctx context, a *struct {
	Of string `json:"of"`
},
) (any, error) {
	if a.Of != "" {
		d, ok := s.Dataset.(*lerobot.Dataset)
		if !ok {
			return nil, robocache.Unsupported("episodes", nil, "this is no LeRobot dataset")
		}
		if a.Of == "info" {
			return d.InfoJSON(ctx)
		}
		return d.EpisodeTable(ctx)
	}
	n := s.Info().Episodes
	r := episodesReply{make([]int64, n), make([]int, n), make([][]string, n)}
	for i := range n {
		ep, err := s.Episode(ctx, i)
		if err != nil {
			return nil, err
		}
		r.Index[i], r.Lengths[i], r.Tasks[i] = ep.Index, ep.Length, ep.Tasks
	}
	return r, nil
}

type dealReply struct {
	Names []string `json:"names"`
	Parts [][]int  `json:"parts"`
}

// dealSplit returns the indices of the episodes of each part of a split.
func (s *sharedDataset) dealSplit(ctx context, v *edit.Verb) (any, error) {
	names, parts, err := edit.Deal(ctx, s.Dataset, v)
	if err != nil {
		return nil, err
	}
	return dealReply{names, parts}, nil
}

type statsArgs struct {
	Count    bool              `json:"count"`
	Keys     []string          `json:"keys"`
	Episodes []int             `json:"episodes"`
	Frames   stats.FramePolicy `json:"frames"`
	SkipBad  bool              `json:"skip_bad"`
	Windows  *windowArgs       `json:"windows"` // in place of streams
}

// windowArgs are the vectors whose statistics are counted over windows, and how.
type windowArgs struct {
	Vectors    map[string]vector.Spec `json:"vectors"`
	PerStep    bool                   `json:"per_step"`
	Drop       bool                   `json:"drop"`
	DropFirst  int                    `json:"drop_n_first_frames"`
	DropLast   int                    `json:"drop_n_last_frames"`
	SingleSums bool                   `json:"single_sums"`
	Histogram  int                    `json:"histogram"`
	Batch      int                    `json:"batch_size"`
	WholeBatch bool                   `json:"drop_last"`
}

// countWindows returns the statistics of vectors over the windows of some episodes.
func (s *sharedDataset) countWindows(
	ctx context, a *windowArgs, episodes []int,
) (robocache.Stats, error) {
	all := map[string]*stats.WindowVector{}
	for name, spec := range a.Vectors {
		v, err := stats.VectorWindows(s.Dataset, &spec)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"vector": name})
		}
		v.PerStep, v.SingleSums = a.PerStep, a.SingleSums
		v.DropFirst, v.DropLast = a.DropFirst, a.DropLast
		if a.Drop {
			v.Beyond = stats.BeyondDrop
		}
		all[name] = v
	}
	return stats.Windows(ctx, s.Dataset, all, stats.WindowOptions{
		Episodes: episodes, Histogram: a.Histogram, Batch: a.Batch, DropLast: a.WholeBatch,
	})
}

// readStats returns the stored statistics, or computes them.
func (s *sharedDataset) readStats(ctx context, a *statsArgs) (any, error) {
	var st robocache.Stats
	var err error
	if a.Count {
		var positions []int
		if positions, err = s.Info().EpisodePositions(a.Episodes); err != nil {
			return nil, err
		}
		if a.Windows != nil {
			st, err = s.countWindows(ctx, a.Windows, positions)
		} else {
			st, err = stats.Compute(
				ctx,
				s.Dataset,
				stats.Options{
					Keys:     a.Keys,
					Episodes: positions,
					Frames:   a.Frames,
					SkipBad:  a.SkipBad,
				},
			)
		}
	} else {
		st, err = s.Stats(ctx)
	}
	if err != nil {
		return nil, err
	}
	r := make(map[string]featureStats, len(st))
	for k, v := range st {
		if v != nil {
			r[k] = newFeatureStats(v, s.scaleOf(k))
		}
	}
	return r, nil
}

// scaleOf returns a function that converts a camera's statistics to the unit in which its depth is
// delivered.
func (s *sharedDataset) scaleOf(key string) func(float64) float64 {
	f := s.Info().Feature(key)
	switch {
	case f == nil || s.depthOf(f) == f.DepthUnit():
		return func(x float64) float64 { return x }
	case s.depth == "m":
		return func(x float64) float64 { return x / 1000 }
	}
	return func(x float64) float64 { return x * 1000 }
}
