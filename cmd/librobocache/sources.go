//go:build cgo

package main

import (
	"cmp"
	"encoding/json"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/kernel/resize"
	"github.com/goatnote-inc/robocache/loader"
)

// source is one dataset of a mixture as JSON: a handle, and the fields of loader.Mix.
type source struct {
	Dataset     int64                   `json:"dataset"`
	Name        string                  `json:"name"`
	Weight      *float64                `json:"weight"`
	Rename      map[string]string       `json:"rename"`
	Keys        []string                `json:"keys"`
	Hz          *robocache.Rate         `json:"hz"`
	Align       *align.Config           `json:"align"`
	Anchor      string                  `json:"anchor"`
	ImageSize   []int                   `json:"image_size"`
	ImageResize loader.Resize           `json:"image_resize"`
	ImageFilter resize.Filter           `json:"image_filter"`
	Transform   []loader.ImageStep      `json:"image_transform"`
	Augment     *loader.Augment         `json:"augment"`
	Episodes    []int                   `json:"episodes"`
	Split       string                  `json:"split"`
	Where       string                  `json:"where"`
	WeightBy    string                  `json:"weight_by"`
	Weights     loader.EpisodeWeights   `json:"episode_weights"`
	Normalize   *loader.Normalize       `json:"normalize"`
	Stats       map[string]featureStats `json:"stats"`
	Compute     bool                    `json:"compute_stats"`
	Dims        map[string][]int        `json:"dims"`
	Vectors     loader.Vectors          `json:"vectors"`
	Primary     bool                    `json:"primary"`

	Constants map[string]loader.Constant `json:"constants"`
}

// request describes a loader or a map over one dataset, whose handle the call names, or over
// several datasets.
type request struct {
	cfg     loader.Config
	sources []source                // nil: one dataset
	stats   map[string]featureStats // of the single dataset, instead of its own
	metrics string                  // an address; "": none
	pin     bool                    // whether batches are page-locked
	// CUDA device of the context; negative: a context that is in use
	device int
}

func parseRequest(text []byte) (r *request, err error) {
	r = &request{device: -1}
	if len(text) == 0 {
		return r, nil
	}
	var raw map[string]json.RawMessage
	// Otherwise ParseConfig reports the error.
	if json.Unmarshal(text, &raw) == nil {
		for key, to := range map[string]any{
			"sources":    &r.sources,
			"pin_memory": &r.pin,
			"pin_device": &r.device,
			"stats":      &r.stats,
			"metrics":    &r.metrics,
		} {
			if own, ok := raw[key]; ok {
				if err := decodeArgument(key, own, to); err != nil {
					return nil, err
				}
				delete(raw, key)
			}
		}
		if r.sources != nil && len(r.sources) == 0 {
			return nil, misuse("loader", "a mixture of no datasets")
		}
		if text, err = json.Marshal(raw); err != nil {
			return nil, err
		}
	}
	r.cfg, err = loader.ParseConfig(text)
	return r, err
}

// acquireSources returns the mixture for the loader, and the datasets in it. If the mixture is not
// used, the caller must release the datasets.
func (r *request) acquireSources(
	ctx context,
	handle int64,
) (mix []loader.Mix, used []*sharedDataset, err error) {
	list := r.sources
	if list == nil {
		list = []source{{Dataset: handle, Stats: r.stats}}
	}
	defer func() {
		if err != nil {
			releaseAll(used)
		}
	}()
	for i := range list {
		s := &list[i]
		open, err := acquireObject[*sharedDataset](s.Dataset)
		if err != nil {
			return nil, used, robocache.At(err, robocache.Where{"source": i})
		}
		used = append(used, open)
		if r.cfg.DepthUnit == "" && i > 0 && open.depth != used[0].depth {
			return nil, used, robocache.Misuse(
				"loader",
				robocache.Where{"source": i},
				"sources were opened with different units of depth (%s)",
				robocache.Option("depth_unit"),
			).Expected(cmp.Or(used[0].depth, "none"), cmp.Or(open.depth, "none")).
				WithHint("give %s to the Loader", robocache.Option("depth_unit"))
		}
		m := loader.Mix{
			Dataset: open.Dataset,
			Name:    s.Name,
			Weight:  s.Weight,
			Rename:  s.Rename,
			Keys:    s.Keys,
			Hz:      s.Hz,
			Anchor:  s.Anchor,
			MixFrames: loader.MixFrames{
				ImageSize:   s.ImageSize,
				ImageResize: s.ImageResize,
				ImageFilter: s.ImageFilter,
				Transform:   s.Transform,
				Augment:     s.Augment,
			},
			Episodes: s.Episodes,
			Split:    s.Split,
			Where:    s.Where,
			WeightBy: s.WeightBy,

			EpisodeWeights: s.Weights,
			Align:          s.Align,
			Dims:           s.Dims,
			Vectors:        s.Vectors,
			Primary:        s.Primary,

			Constants: s.Constants,
			MixStatistics: loader.MixStatistics{
				Normalize:    s.Normalize,
				Stats:        statsOf(s.Stats),
				ComputeStats: s.Compute,
			},
		}
		if err := open.checkGrid(ctx, cmp.Or(m.Hz, r.cfg.Hz), cmp.Or(m.Align, r.cfg.Align)); err !=
			nil {
			if r.sources != nil {
				err = robocache.At(err, robocache.Where{"source": i})
			}
			return nil, used, err
		}
		mix = append(mix, m)
	}
	r.cfg.DepthUnit = cmp.Or(r.cfg.DepthUnit, loader.DepthUnit(used[0].depth))
	return mix, used, nil
}

// releaseAll releases datasets and returns the first error.
func releaseAll(used []*sharedDataset) error {
	var first error
	for _, s := range used {
		if err := s.release(); first == nil {
			first = err
		}
	}
	return first
}

// newLoader creates the engine's loader of a mixture, or of a dataset that it follows.
func (r *request) newLoader(
	ctx context, mix []loader.Mix, used []*sharedDataset,
) (*loader.Loader, error) {
	if r.cfg.Follow == nil {
		return loader.NewMix(ctx, mix, r.cfg)
	}
	if r.sources != nil {
		return nil, robocache.Unsupported("loader", nil, "%s of a mixture",
			robocache.Option("follow", true)).
			WithHint("Follow one dataset.")
	}
	r.cfg.Stats = mix[0].Stats
	return loader.NewFollower(ctx, used[0].openAgain, r.cfg)
}

// openLoader creates the loader.
func (r *request) openLoader(ctx context, handle int64) (*loaderHandle, error) {
	mix, used, err := r.acquireSources(ctx, handle)
	if err != nil {
		return nil, err
	}
	var host *cudahost.Host
	if r.pin {
		if host, err = cudahost.Open(r.device); err != nil {
			_ = releaseAll(used)
			return nil, err
		}
		r.cfg.Allocator = host
	}
	r.cfg.Log = logOf(ctx)
	l, err := r.newLoader(ctx, mix, used)
	if err != nil {
		_ = releaseAll(used)
		if host != nil {
			host.Close()
		}
		return nil, err
	}
	return &loaderHandle{loader: l, isRaw: r.cfg.Raw, datasets: used, pinnedHost: host}, nil
}
