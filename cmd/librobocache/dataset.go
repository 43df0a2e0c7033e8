package main

/*
#include <stdint.h>
*/
import "C"

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/mapping"
	"github.com/goatnote-inc/robocache/stats"
)

// shared is an open dataset, used by its own handle and by the maps and loaders over it. The last one closes it.
type shared struct {
	robocache.Dataset
	depth string // the unit of depth that opening asked for, "m" or "mm"; "" = as it is kept
	users atomic.Int64
}

// depthOf is the unit in which a stream's depth is given; "" of everything else.
func (s *shared) depthOf(f *robocache.Feature) string {
	kept := f.DepthUnit()
	if kept == "" {
		return ""
	}
	return cmp.Or(s.depth, kept)
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

func (s *shared) retain() *shared { s.users.Add(1); return s }

func (s *shared) release() error {
	if s.users.Add(-1) == 0 {
		return s.Dataset.Close()
	}
	return nil
}

// dataset is the object behind a dataset's handle. Calls hold it open while they run.
type dataset struct {
	mu     sync.Mutex
	closed bool
	shared *shared
}

func (d *dataset) hold(op string) (*shared, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, misuse(op, "the dataset is closed")
	}
	return d.shared.retain(), nil
}

func (d *dataset) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.shared.release()
}

// holding gives the dataset of a handle, kept open until the call is over.
func holding(handle C.int64_t, op string, f func(*shared) (result, error)) (result, error) {
	d, err := lookup[*dataset](int64(handle), op)
	if err != nil {
		return result{}, err
	}
	s, err := d.hold(op)
	if err != nil {
		return result{}, err
	}
	defer func() { _ = s.release() }()
	return f(s)
}

// made puts a new object into the table of handles and says how it is taken back.
func made(o object, value func(handle int64) any) result {
	h := handles.put(o)
	return result{value: value(h), undo: func() {
		if o := handles.remove(h); o != nil {
			_ = o.close()
		}
	}}
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
}

type openReply struct {
	Dataset int64    `json:"dataset"`
	Info    openInfo `json:"info"`
}

//export robocache_open
func robocache_open(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a openArgs
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		if a.DepthUnit != "" && a.DepthUnit != "m" && a.DepthUnit != "mm" {
			return result{}, &robocache.Error{Class: robocache.ErrMisuse, Op: "open", Msg: "depth_unit", Want: `"mm" or "m"`, Got: a.DepthUnit}
		}
		m, err := readMap(a.Map)
		if err != nil {
			return result{}, err
		}
		ds, err := mapping.Open(ctx, a.URI, robocache.OpenOptions{Format: a.Format, MemoryBudget: a.MemoryBudget, HZ: a.RowsHz, Map: m, Options: a.Options, Split: a.Split, FollowLinks: a.FollowLinks})
		if err != nil {
			return result{}, err
		}
		s := (&shared{Dataset: ds, depth: a.DepthUnit}).retain()
		return made(&dataset{shared: s}, func(h int64) any { return openReply{h, openInfo{s.told(), ds.Info().SplitCounts()}} }), nil
	})
}

type episodeArgs struct {
	Episode int    `json:"episode"`
	Key     string `json:"key"`
}

// at finds an episode by position; negative positions count from the end.
func (s *shared) at(episode int) (int, error) {
	n := s.Info().Episodes
	e := episode
	if e < 0 {
		e += n
	}
	if e < 0 || e >= n {
		return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: "episode", Where: robocache.Where{"dataset": s.Info().URI, "episode": episode}, Msg: "there is no such episode", Hint: "the dataset has " + plural(n, "episode")}
	}
	return e, nil
}

//export robocache_episode
func robocache_episode(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a episodeArgs
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		return holding(handle, "episode", func(s *shared) (result, error) {
			e, err := s.at(a.Episode)
			if err != nil {
				return result{}, err
			}
			ep, err := s.Episode(ctx, e)
			return result{value: ep}, err
		})
	})
}

type episodesReply struct {
	Index   []int64    `json:"episode_index"`
	Lengths []int      `json:"lengths"`
	Tasks   [][]string `json:"tasks"`
}

// robocache_episodes gives the metadata of all episodes at once, column by column; of a LeRobot dataset also info.json as it is
// ("of": "info"), or every column that its own table of episodes has ("of": "table").
//
//export robocache_episodes
func robocache_episodes(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a struct {
		Of string `json:"of"`
	}
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		return holding(handle, "episodes", func(s *shared) (result, error) {
			if a.Of != "" {
				d, ok := s.Dataset.(*lerobot.Dataset)
				if !ok {
					return result{}, &robocache.Error{Class: robocache.ErrUnsupported, Op: "episodes", Msg: "this is no LeRobot dataset"}
				}
				if a.Of == "info" {
					v, err := d.InfoJSON(ctx)
					return result{value: v}, err
				}
				v, err := d.EpisodeTable(ctx)
				return result{value: v}, err
			}
			n := s.Info().Episodes
			r := episodesReply{make([]int64, n), make([]int, n), make([][]string, n)}
			for i := range n {
				ep, err := s.Episode(ctx, i)
				if err != nil {
					return result{}, err
				}
				r.Index[i], r.Lengths[i], r.Tasks[i] = ep.Index, ep.Length, ep.Tasks
			}
			return result{value: r}, nil
		})
	})
}

type featureStats struct {
	Min       []number            `json:"min,omitempty"`
	Max       []number            `json:"max,omitempty"`
	Mean      []number            `json:"mean,omitempty"`
	Std       []number            `json:"std,omitempty"`
	Count     int64               `json:"count"`
	Quantiles map[string][]number `json:"quantiles,omitempty"`
	Shape     []int               `json:"shape,omitempty"`
}

//export robocache_stats
func robocache_stats(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a struct {
		Count    bool              `json:"count"`
		Keys     []string          `json:"keys"`
		Episodes []int             `json:"episodes"`
		Frames   stats.FramePolicy `json:"frames"`
		SkipBad  bool              `json:"skip_bad"`
	}
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		return holding(handle, "stats", func(s *shared) (result, error) {
			var st robocache.Stats
			var err error
			if a.Count {
				st, err = stats.Compute(ctx, s.Dataset, stats.Options{Keys: a.Keys, Episodes: a.Episodes, Frames: a.Frames, SkipBad: a.SkipBad})
			} else {
				st, err = s.Stats(ctx)
			}
			if err != nil {
				return result{}, err
			}
			r := make(map[string]featureStats, len(st))
			for k, v := range st {
				if v != nil {
					v = s.inUnit(k, v)
					r[k] = featureStats{numbers(v.Min), numbers(v.Max), numbers(v.Mean), numbers(v.Std), v.Count, quantiles(v.Quantiles), v.Shape}
				}
			}
			return result{value: r}, nil
		})
	})
}

// inUnit brings a camera's statistics to the unit in which its depth is given.
func (s *shared) inUnit(key string, v *robocache.FeatureStats) *robocache.FeatureStats {
	f := s.Info().Feature(key)
	if f == nil || s.depthOf(f) == f.DepthUnit() {
		return v
	}
	scaled := func(list []float64) []float64 {
		out := slices.Clone(list)
		for i := range out {
			if s.depth == "m" {
				out[i] /= 1000
			} else {
				out[i] *= 1000
			}
		}
		return out
	}
	out := *v
	out.Min, out.Max, out.Mean, out.Std = scaled(v.Min), scaled(v.Max), scaled(v.Mean), scaled(v.Std)
	out.Quantiles = make(map[string][]float64, len(v.Quantiles))
	for q, list := range v.Quantiles {
		out.Quantiles[q] = scaled(list)
	}
	return &out
}

// robocache_stream gives times and, for numeric and text features, the values of one stream of an episode.
//
//export robocache_stream
func robocache_stream(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a struct {
		episodeArgs
		Times   bool `json:"times"`
		Values  bool `json:"values"`
		Encoded bool `json:"encoded"`
	}
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		return holding(handle, "stream", func(s *shared) (result, error) {
			e, err := s.at(a.Episode)
			if err != nil {
				return result{}, err
			}
			arr := &answer{}
			if a.Encoded {
				err = s.encoded(ctx, arr, e, a.Key)
			} else {
				err = s.stream(ctx, arr, e, a.Key, a.Times, a.Values)
			}
			if err != nil {
				arr.drop()
				return result{}, err
			}
			return arr.result(), nil
		})
	})
}
