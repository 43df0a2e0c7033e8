package options

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel/resize"
)

// Mix is one source of a mixture, with its overrides of the Config. A field with the zero value
// overrides nothing.
type Mix struct {
	Dataset robocache.Dataset
	Name    string // in errors, states and statistics; default: its position
	// share of the samples, independent of its size; nil for all sources: shares by size
	Weight  *float64
	Rename  map[string]string // key of the dataset → key of the batch
	Keys    []string          // keys of the batch
	Hz      *robocache.Rate
	Align   *align.Config
	Vectors Vectors // nil: those of the Config
	Anchor  string  // key of the batch: the source's samples are the rows of this stream
	MixFrames
	Episodes []int  // indices
	Split    string // as in Config; Episodes must be nil
	Where    string // as in Config, by keys of the batch
	// EpisodeWeights and WeightBy are as in Config, WeightBy by keys of the batch. Either replaces
	// both of the Config.
	EpisodeWeights EpisodeWeights
	WeightBy       string
	MixStatistics
	// Primary ends the epoch when all primary sources have delivered all their samples, or with
	// Stop "first" when one has.
	Primary bool
	// Constants holds, by key of the batch, a value that each sample of the source has.
	Constants map[string]Constant
	// Dims holds, by key, the positions of the source's numbers in a padded row (Missing "pad"). By
	// default the numbers are the first ones of the row.
	Dims map[string][]int
}

// MixFrames overrides how frames of one source are delivered.
type MixFrames struct {
	ImageSize   []int // in place of Config.Transform
	ImageResize Resize
	ImageFilter resize.Filter
	Transform   []ImageStep // in place of Config.ImageSize and Config.ImageResize
	Augment     *Augment
}

// MixStatistics overrides how values of one source are normalized.
type MixStatistics struct {
	Normalize    *Normalize
	Stats        robocache.Stats // by key of the batch or of the dataset; default: the dataset's
	ComputeStats bool
}

// SourceConfig returns the Config of one source. several reports whether the mixture has more than
// one source. generated lists the keys that any dataset has on request.
func (m *Mix) SourceConfig(cfg Config, several bool, generated []string) (Config, error) {
	if m.Dataset == nil {
		return cfg, robocache.Misuse("mixture", nil, "a source without a dataset")
	}
	if several {
		cfg.limitToSource(m, generated)
	}
	if m.Hz != nil || m.Align != nil {
		if m.Align != nil {
			cfg.Align = m.Align
		}
		a := align.Config{}
		if cfg.Align != nil {
			a = *cfg.Align
		}
		if m.Hz != nil {
			a.HZ, cfg.Hz = *m.Hz, m.Hz
		} else if a.HZ.Zero() && cfg.Hz != nil {
			a.HZ = *cfg.Hz
		}
		cfg.Align = &a
		if err := cfg.checkAlign(); err != nil {
			return cfg, err
		}
	}
	overrideValue(&cfg.Anchor, m.Anchor)
	if m.Transform != nil {
		cfg.Transform, cfg.ImageSize, cfg.ImageResize = m.Transform, nil, Stretch
	} else if m.ImageSize != nil {
		cfg.Transform = nil
	}
	overrideValue(&cfg.ImageResize, m.ImageResize)
	overrideValue(&cfg.ImageFilter, m.ImageFilter)
	overrideValue(&cfg.Augment, m.Augment)
	overrideValue(&cfg.Split, m.Split)
	overrideValue(&cfg.Where, m.Where)
	if m.WeightBy != "" || m.EpisodeWeights != nil {
		cfg.WeightBy, cfg.EpisodeWeights = m.WeightBy, m.EpisodeWeights
	}
	if m.ImageSize != nil {
		cfg.ImageSize = m.ImageSize
	}
	if m.Episodes != nil {
		cfg.Episodes = m.Episodes
	}
	if m.Keys != nil {
		cfg.Keys = m.Keys
	}
	if m.Vectors != nil {
		cfg.Vectors = m.Vectors
	}
	if m.Stats != nil {
		cfg.Stats = m.Stats
	}
	if m.Normalize != nil {
		cfg.Normalize = *m.Normalize
	}
	for _, err := range []error{
		checkSize("image_size of a mixture's source", m.ImageSize),
		cfg.checkResize(),
		cfg.checkGeometry(),
		cfg.Normalize.Check(),
		m.Vectors.check(true),
		m.EpisodeWeights.check(),
		cfg.checkWeightBy(),
	} {
		if err != nil {
			return cfg, err
		}
	}
	cfg.ComputeStats = cfg.ComputeStats || m.ComputeStats
	return cfg, nil
}

// overrideValue sets an option to the source's value if that is not zero.
func overrideValue[T comparable](to *T, value T) {
	if value != *new(T) {
		*to = value
	}
}

// PlaceOfSource returns the position, URI and name of source i of a mixture, for errors.
func PlaceOfSource(i int, m *Mix) robocache.Where {
	w := robocache.Where{"source": i}
	if m.Dataset != nil {
		if uri := m.Dataset.Info().URI; uri != "" {
			w["dataset"] = robocache.Redact(uri)
		}
	}
	if m.Name != "" && m.Name != fmt.Sprint(i) {
		w["name"] = m.Name
	}
	return w
}
