package plan

import (
	"cmp"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// setWindow sets the rows or times of a column's window.
func (src *Source) setWindow(c *column.Column) (err error) {
	cfg := &src.Config
	var w column.Window
	if n := cfg.Native.Of(c.Key); n != nil {
		if w.Nanos, err = n.Nanos(); err != nil {
			return err
		}
		c.Time.IsNative = n.Count == 0
		if w.Nanos == nil {
			c.Span = &[2]int64{options.Seconds(n.Span[0]), options.Seconds(n.Span[1])}
			if c.Feature.Kind != robocache.KindNumeric || c.Feature.Ragged() {
				c.Steps = max(src.spanSlots[c.Key], 1)
				c.Axis = []int{c.Steps}
			}
			return nil
		}
	} else if rows := cfg.Indices.Of(c.Key); rows != nil {
		w, err = rowWindow(rows, cfg, c.Time != nil)
	} else if deltas := cfg.Deltas.Of(c.Key); deltas != nil {
		w, err = src.timeWindow(deltas, c)
	} else {
		return nil
	}
	if err != nil {
		return err
	}
	c.Steps = max(len(w.Offsets), len(w.Nanos))
	c.Axis = []int{c.Steps}
	c.Window = src.windowNumber(w)
	return nil
}

// windowNumber returns the position of a window in src.Windows. It adds the window if it is new.
func (src *Source) windowNumber(w column.Window) int {
	i := slices.IndexFunc(src.Windows, func(o column.Window) bool {
		return slices.Equal(o.Offsets, w.Offsets) && slices.Equal(o.Nanos, w.Nanos)
	})
	if i < 0 {
		i = len(src.Windows)
		src.Windows = append(src.Windows, w)
	}
	return i
}

// timeWindow returns the window of offsets in seconds. The window has times if the column is read
// by time, and else the rows at these offsets.
func (src *Source) timeWindow(deltas []float64, c *column.Column) (w column.Window, err error) {
	cfg := &src.Config
	if w.Nanos, err = options.Nanos(deltas, "delta_timestamps"); err != nil || c.Time != nil {
		return w, err // offsets in time need not be multiples of a row
	}
	fps := src.Dataset.Info().FPS
	if fps.Zero() {
		fps = c.Feature.FPS
	}
	if fps.Zero() {
		return w, src.Dataset.Info().NoClock(
			"loader",
			robocache.Where{"option": "delta_timestamps"},
			"delta_timestamps are in seconds",
		)
	}
	tolerance := cmp.Or(cfg.OffsetTolerance, cfg.Tolerance, new(defaultTolerance))
	w.Offsets, err = align.Offsets(deltas, fps, *tolerance)
	return w, err
}

// rowWindow returns a window of offsets in rows of the timebase, which is a stream or a grid.
func rowWindow(rows []int, cfg *options.Config, timed bool) (w column.Window, err error) {
	switch {
	case !timed:
		w.Offsets = rows
	case cfg.Align == nil || cfg.Align.HZ.Zero():
		return w, robocache.Misuse("loader", nil,
			"delta_indices of a stream whose rows are not the samples'").
			WithHint("%s makes its rows the samples; or give %s or %s in seconds, or %s",
				robocache.Option("anchor"), robocache.Option("delta_timestamps"),
				robocache.Option("windows"), robocache.Option("hz"))
	default:
		for _, n := range rows {
			w.Nanos = append(w.Nanos, cfg.Align.HZ.Nanos(int64(n)))
		}
	}
	return w, nil
}
