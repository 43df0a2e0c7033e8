package main

/*
#include <stdint.h>
*/
import "C"

import (
	"cmp"
	"encoding/json"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/loader"
)

// source is one dataset of a mixture as it crosses the border: a handle, and the fields of loader.Mix.
type source struct {
	Dataset     int64                   `json:"dataset"`
	Name        string                  `json:"name"`
	Weight      *float64                `json:"weight"`
	Rename      map[string]string       `json:"rename"`
	Keys        []string                `json:"keys"`
	Hz          *robocache.Rate         `json:"hz"`
	Align       json.RawMessage         `json:"align"` // align.Config
	Anchor      string                  `json:"anchor"`
	ImageSize   []int                   `json:"image_size"`
	ImageResize loader.Resize           `json:"image_resize"`
	Augment     *loader.Augment         `json:"augment"`
	Episodes    []int                   `json:"episodes"`
	Split       string                  `json:"split"`
	Normalize   *loader.Normalize       `json:"normalize"`
	Stats       map[string]featureStats `json:"stats"`
	Compute     bool                    `json:"compute_stats"`
	Dims        map[string][]int        `json:"dims"`
}

// wish is what a loader is asked for: of one dataset, whose handle the call names, or of several.
type wish struct {
	cfg     loader.Config
	sources []source                // nil: one
	stats   map[string]featureStats // of the one, in place of its own
	pin     bool                    // page-locked batches
	device  int                     // in whose context; below 0: one that is in use
}

func parseWish(in *C.char) (wish, error) {
	if in == nil {
		return wish{device: -1}, nil
	}
	return parseWishText([]byte(C.GoString(in)))
}

func parseWishText(text []byte) (w wish, err error) {
	var raw map[string]json.RawMessage
	w.device = -1
	if err := json.Unmarshal(text, &raw); err != nil {
		w.cfg, err = loader.ParseConfig(text) // says what is wrong
		return w, err
	}
	for key, to := range map[string]any{"sources": &w.sources, "pin_memory": &w.pin, "pin_device": &w.device, "stats": &w.stats} {
		if own, ok := raw[key]; ok {
			if err := decodeArguments(own, to); err != nil {
				return w, err
			}
			delete(raw, key)
		}
	}
	if w.sources != nil && len(w.sources) == 0 {
		return w, misuse("loader", "a mixture of no datasets")
	}
	if text, err = json.Marshal(raw); err != nil {
		return w, err
	}
	w.cfg, err = loader.ParseConfig(text)
	return w, err
}

// mix makes the engine's description. Its datasets are held open: release them where it is not used.
func (w *wish) mix(handle int64) (mix []loader.Mix, held []*shared, err error) {
	list := w.sources
	if list == nil {
		list = []source{{Dataset: handle, Stats: w.stats}}
	}
	defer func() {
		if err != nil {
			releaseAll(held)
		}
	}()
	for i := range list {
		s := &list[i]
		d, err := lookup[*dataset](s.Dataset, "loader")
		if err != nil {
			return nil, held, robocache.At(err, robocache.Where{"source": i})
		}
		open, err := d.hold("loader")
		if err != nil {
			return nil, held, robocache.At(err, robocache.Where{"source": i})
		}
		held = append(held, open)
		if w.cfg.DepthUnit == "" && i > 0 && open.depth != held[0].depth {
			return nil, held, &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"source": i}, Msg: "sources were opened with different depth_unit=", Want: cmp.Or(held[0].depth, "none"), Got: cmp.Or(open.depth, "none"), Hint: "give depth_unit= to the Loader"}
		}
		m := loader.Mix{Dataset: open.Dataset, Name: s.Name, Weight: s.Weight, Rename: s.Rename, Keys: s.Keys, Hz: s.Hz, Anchor: s.Anchor, ImageSize: s.ImageSize, ImageResize: s.ImageResize, Augment: s.Augment, Episodes: s.Episodes, Split: s.Split, Normalize: s.Normalize,
			Stats: statsOf(s.Stats), ComputeStats: s.Compute, Dims: s.Dims}
		if len(s.Align) > 0 && string(s.Align) != "null" {
			a, err := align.ParseConfig(s.Align)
			if err != nil {
				return nil, held, err
			}
			m.Align = &a
		}
		mix = append(mix, m)
	}
	w.cfg.DepthUnit = cmp.Or(w.cfg.DepthUnit, held[0].depth)
	return mix, held, nil
}

// releaseAll gives datasets back; the first error.
func releaseAll(held []*shared) error {
	var first error
	for _, s := range held {
		if err := s.release(); first == nil {
			first = err
		}
	}
	return first
}

// open makes the loader of a wish.
func (w *wish) open(ctx context, handle int64) (*loading, error) {
	mix, held, err := w.mix(handle)
	if err != nil {
		return nil, err
	}
	var host *cudahost.Host
	if w.pin {
		if host, err = cudahost.Open(w.device); err != nil {
			_ = releaseAll(held)
			return nil, err
		}
		w.cfg.Memory = host
	}
	w.cfg.Log = logOf(ctx)
	l, err := loader.NewMix(ctx, mix, w.cfg)
	if err != nil {
		_ = releaseAll(held)
		if host != nil {
			host.Close()
		}
		return nil, err
	}
	return &loading{l: l, raw: w.cfg.Raw, data: held, host: host}, nil
}

func statsOf(given map[string]featureStats) robocache.Stats {
	if given == nil {
		return nil
	}
	out := make(robocache.Stats, len(given))
	for k, f := range given {
		out[k] = f.stats()
	}
	return out
}

func (f *featureStats) stats() *robocache.FeatureStats {
	out := &robocache.FeatureStats{Min: floats(f.Min), Max: floats(f.Max), Mean: floats(f.Mean), Std: floats(f.Std), Count: f.Count, Shape: f.Shape}
	for k, v := range f.Quantiles {
		if out.Quantiles == nil {
			out.Quantiles = map[string][]float64{}
		}
		out.Quantiles[k] = floats(v)
	}
	return out
}

// robocache_loader_locate says where samples lie: int64 arrays dataset_index, episode (a position), row.
//
//export robocache_loader_locate
func robocache_loader_locate(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a struct {
		Samples []int64 `json:"samples"`
	}
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return with(handle, timeoutMS, ticket, out, func(_ context, l *loading) (result, error) {
		var ans answer
		columns := make([][]int64, 3)
		for i, key := range []string{"dataset_index", "episode", "row"} {
			b, err := ans.add(key, robocache.Int64, []int{len(a.Samples)})
			if err != nil {
				ans.drop()
				return result{}, err
			}
			columns[i] = int64s(b)
		}
		err := l.l.Locate(a.Samples, func(i, source int, r robocache.Row) {
			columns[0][i], columns[1][i], columns[2][i] = int64(source), int64(r.Episode), int64(r.Index)
		})
		if err != nil {
			ans.drop()
			return result{}, err
		}
		return ans.result(), nil
	})
}
