package loader

import (
	"cmp"
	"fmt"
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"slices"
)

// window is a set of row offsets that several columns may share; in time, where they go by time.
type window struct {
	offsets []int
	nanos   []int64
}

// windowed says whether a key has a window of any sort.
func (c *Config) windowed(key string) bool {
	return c.Deltas.Of(key) != nil || c.Indices.Of(key) != nil || c.Native.Of(key) != nil
}

// checkWindows refuses windows of keys that are not there, and two of one key.
func (c *Config) checkWindows(info *robocache.Info, known []string, wanted func(string) bool) error {
	check := func(option, key string, another bool) error {
		switch {
		case !slices.Contains(known, key):
			return lacks(info, option, key, known)
		case !wanted(key):
			return robocache.Misuse("loader", nil, "%s names %s, which keys leaves out", option, key)
		case another:
			return options.Misuse(option, option+" or another window of "+key, "both")
		}
		return nil
	}
	for _, d := range c.Deltas {
		if err := check("delta_timestamps", d.Key, false); err != nil {
			return err
		}
		if len(d.Offsets) == 0 {
			return options.Misuse("delta_timestamps", "at least one offset for "+d.Key, "none")
		}
	}
	for _, x := range c.Indices {
		if err := check("delta_indices", x.Key, c.Deltas.Of(x.Key) != nil); err != nil {
			return err
		}
		if len(x.Rows) == 0 || len(x.Rows) > options.MaxSteps {
			return options.Misuse("delta_indices", "1 to 2^20 offsets for "+x.Key, fmt.Sprint(len(x.Rows)))
		}
		if slices.Min(x.Rows) < -options.MaxSteps || slices.Max(x.Rows) > options.MaxSteps {
			return options.Misuse("delta_indices", fmt.Sprintf("rows within ±%d for %s", options.MaxSteps, x.Key), options.Clip(fmt.Sprint(x.Rows)))
		}
	}
	for i := range c.Native {
		key := c.Native[i].Key
		if err := check("windows", key, c.Deltas.Of(key) != nil || c.Indices.Of(key) != nil); err != nil {
			return err
		}
	}
	return nil
}

func textWindow(key string) error {
	return robocache.Misuse("loader", robocache.Where{"stream": key}, "a window of a text").
		WithHint("texts are those of the sample's own time")
}

// setWindow settles the rows or times of a column's window.
func (src *source) setWindow(c *column) (err error) {
	cfg := &src.cfg
	var w window
	if n := cfg.Native.Of(c.key); n != nil {
		if w.nanos, err = n.Nanos(); err != nil {
			return err
		}
		c.time.native = n.Count == 0
		if w.nanos == nil {
			c.span = &[2]int64{options.Seconds(n.Span[0]), options.Seconds(n.Span[1])}
			if c.feature.Kind != robocache.KindNumeric || c.feature.Ragged() {
				c.steps = max(src.widest[c.key], 1)
				c.axis = []int{c.steps}
			}
			return nil
		}
	} else if rows := cfg.Indices.Of(c.key); rows != nil {
		w, err = rowWindow(rows, cfg, c.time != nil)
	} else if deltas := cfg.Deltas.Of(c.key); deltas != nil {
		w, err = src.timeWindow(deltas, c)
	} else {
		return nil
	}
	if err != nil {
		return err
	}
	c.steps = max(len(w.offsets), len(w.nanos))
	c.axis = []int{c.steps}
	c.window = slices.IndexFunc(src.windows, func(o window) bool { return slices.Equal(o.offsets, w.offsets) && slices.Equal(o.nanos, w.nanos) })
	if c.window < 0 {
		c.window = len(src.windows)
		src.windows = append(src.windows, w)
	}
	return nil
}

// timeWindow is a window in seconds: in rows, unless the column goes by time.
func (src *source) timeWindow(deltas []float64, c *column) (w window, err error) {
	cfg := &src.cfg
	if w.nanos, err = options.Nanos(deltas, "delta_timestamps"); err != nil || c.time != nil {
		return w, err // offsets in time need not be multiples of a frame
	}
	fps := src.ds.Info().FPS
	if fps.Zero() {
		fps = c.feature.FPS
	}
	if fps.Zero() {
		return w, robocache.NoClock("loader", nil, "delta_timestamps are in seconds")
	}
	tolerance := cmp.Or(cfg.OffsetTolerance, cfg.Tolerance, new(defaultTolerance))
	w.offsets, err = align.Offsets(deltas, fps, *tolerance)
	return w, err
}

// rowWindow is a window in rows: of the timebase that the samples lie on, be it a stream's own or a grid.
func rowWindow(rows []int, cfg *Config, timed bool) (w window, err error) {
	switch {
	case !timed:
		w.offsets = rows
	case cfg.Align == nil || cfg.Align.HZ.Zero():
		return w, robocache.Misuse("loader", nil, "delta_indices of a stream whose rows are not the samples'").
			WithHint("%s makes its rows the samples; or give %s or %s in seconds, or %s", robocache.Option("anchor"),
				robocache.Option("delta_timestamps"), robocache.Option("windows"), robocache.Option("hz"))
	default:
		for _, n := range rows {
			w.nanos = append(w.nanos, cfg.Align.HZ.Nanos(int64(n)))
		}
	}
	return w, nil
}
