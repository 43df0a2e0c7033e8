package options

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
)

// Mix is one source of a mixture, and what is special about it. What is left out is as the Config says.
type Mix struct {
	Dataset robocache.Dataset
	Name    string            // in errors, states and statistics; default: its number
	Weight  *float64          // share of the samples, whatever its size; nil in all sources: shares by size
	Rename  map[string]string // its key → the batch's
	Keys    []string          // after the renaming
	Hz      *robocache.Rate
	Align   *align.Config
	Anchor  string // the stream whose rows are its samples, by the batch's key
	MixFrames
	Episodes []int  // indices
	Split    string // as of Config; beside Episodes, none
	MixStatistics
	// Dims says where its own numbers of a key stand in the padded row (Config.Missing "pad"); without an entry they lead.
	Dims map[string][]int
}

// MixFrames states what becomes of the frames of one source. What is left out is as the Config says.
type MixFrames struct {
	ImageSize   []int
	ImageResize Resize
	Augment     *Augment
}

// MixStatistics states by what one source is normalised. What is left out is as the Config says.
type MixStatistics struct {
	Normalize    *Normalize
	Stats        robocache.Stats // in place of the dataset's own, by the batch's key or by its own
	ComputeStats bool
}

// SourceConfig is the Config of one source.
func (m *Mix) SourceConfig(cfg Config, several bool) (Config, error) {
	if m.Dataset == nil {
		return cfg, robocache.Misuse("mixture", nil, "a source without a dataset")
	}
	if several {
		cfg.ofSource(m)
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
	override(&cfg.Anchor, m.Anchor)
	override(&cfg.ImageResize, m.ImageResize)
	override(&cfg.Augment, m.Augment)
	override(&cfg.Split, m.Split)
	if m.ImageSize != nil {
		cfg.ImageSize = m.ImageSize
	}
	if m.Episodes != nil {
		cfg.Episodes = m.Episodes
	}
	if m.Keys != nil {
		cfg.Keys = m.Keys
	}
	if m.Stats != nil {
		cfg.Stats = m.Stats
	}
	if m.Normalize != nil {
		cfg.Normalize = *m.Normalize
	}
	for _, err := range []error{checkSize("image_size of a mixture's source", m.ImageSize), cfg.checkResize(), cfg.needsSize(), cfg.Normalize.Check()} {
		if err != nil {
			return cfg, err
		}
	}
	cfg.ComputeStats = cfg.ComputeStats || m.ComputeStats
	return cfg, nil
}

// override takes what a source says in place of what the loader says.
func override[T comparable](to *T, own T) {
	if own != *new(T) {
		*to = own
	}
}

// PlaceOfSource returns the place of source i of a mixture: its position, its URI, and its name if it was given one.
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
