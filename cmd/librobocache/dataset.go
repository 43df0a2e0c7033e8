//go:build cgo

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/mapping"
	"github.com/goatnote-inc/robocache/stats"
)

// shared is an open dataset, used by its handle and by the maps and loaders over it. The last one
// closes it.
type shared struct {
	users
	robocache.Dataset
	depth string // the unit of depth that opening asked for, "m" or "mm"; "" = as it is kept
}

func newShared(ds robocache.Dataset, depth string) *shared {
	s := &shared{Dataset: ds, depth: depth}
	s.end = ds.Close
	s.n.Store(1)
	return s
}

// depthOf is the unit in which a stream's depth is given; "" of everything else.
func (s *shared) depthOf(f *robocache.Feature) string {
	kept := f.DepthUnit()
	if kept == "" {
		return ""
	}
	return cmp.Or(s.depth, kept)
}

// checkGrid refuses to resample rows of which nobody knows when they were. hz, and that of an
// alignment, may be none.
func (s *shared) checkGrid(ctx context, hz *robocache.Rate, a *align.Config) error {
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

// told is what the dataset says of itself, with depth in the unit in which it is given.
func (s *shared) told() *robocache.Info {
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
	Map          json.RawMessage   `json:"map"` // a mapping, or the path of a file that holds one
	Options      map[string]string `json:"options"`
	Split        string            `json:"split"`
	Episodes     []int             `json:"episodes"`
	FollowLinks  bool              `json:"follow_links"`
}

// readMap reads a mapping, or the file whose path is given.
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
	// by position; absent: 0, 1, 2 and on
	Indices []int64 `json:"episode_indices,omitempty"`
}

type openReply struct {
	Dataset int64    `json:"dataset"`
	Info    openInfo `json:"info"`
}

func open(ctx context, a *openArgs) (any, error) {
	if a.DepthUnit != "" && a.DepthUnit != "m" && a.DepthUnit != "mm" {
		return nil, robocache.Misuse("open", nil, "depth_unit").Expected(`"mm" or "m"`, a.DepthUnit)
	}
	m, err := readMap(a.Map)
	if err != nil {
		return nil, err
	}
	ds, err := mapping.Open(
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
		},
	)
	if err != nil {
		return nil, err
	}
	s := newShared(ds, a.DepthUnit)
	return keep(s, func(h int64) any {
		return openReply{
			h,
			openInfo{s.told(), ds.Info().SplitCounts(), ds.Info().NumberedEpisodes()},
		}
	}), nil
}

// episodeArgs name an episode by its position: the client has the indices of openInfo.
type episodeArgs struct {
	Position int `json:"position"`
}

// at checks the position of an episode.
func (s *shared) at(position int) (int, error) {
	if n := s.Info().Episodes; position < 0 || position >= n {
		return 0, robocache.Misuse("episode", robocache.Where{"dataset": s.Info().URI, "position": position}, "no episode at this position").
			Expected(fmt.Sprintf("below %d", n), "")
	}
	return position, nil
}

func (s *shared) episode(ctx context, a *episodeArgs) (any, error) {
	entryValue, err := s.at(a.Position)
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

// episodes gives the metadata of all episodes at once, column by column; of a LeRobot dataset also
// info.json as it is ("of": "info"), or every column that its own table of episodes has ("of":
// "table").
func (s *shared) episodes(ctx context, a *struct {
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

// deal returns the indices of the episodes of each part of a split.
func (s *shared) deal(ctx context, v *edit.Verb) (any, error) {
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
}

// stats gives the statistics that the dataset brings, or counts them.
func (s *shared) stats(ctx context, a *statsArgs) (any, error) {
	var st robocache.Stats
	var err error
	if a.Count {
		var positions []int
		if positions, err = s.Info().EpisodePositions(a.Episodes); err != nil {
			return nil, err
		}
		st, err = stats.Compute(
			ctx,
			s.Dataset,
			stats.Options{Keys: a.Keys, Episodes: positions, Frames: a.Frames, SkipBad: a.SkipBad},
		)
	} else {
		st, err = s.Stats(ctx)
	}
	if err != nil {
		return nil, err
	}
	r := make(map[string]featureStats, len(st))
	for k, v := range st {
		if v != nil {
			r[k] = tellStats(v, s.scaleOf(k))
		}
	}
	return r, nil
}

// scaleOf brings a camera's statistics to the unit in which its depth is given.
func (s *shared) scaleOf(key string) func(float64) float64 {
	f := s.Info().Feature(key)
	switch {
	case f == nil || s.depthOf(f) == f.DepthUnit():
		return func(x float64) float64 { return x }
	case s.depth == "m":
		return func(x float64) float64 { return x / 1000 }
	}
	return func(x float64) float64 { return x * 1000 }
}
