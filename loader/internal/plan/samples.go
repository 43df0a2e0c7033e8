package plan

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/options"
)

// selectRows returns which rows of the selected episodes are samples.
func (src *Source) selectRows() (order.Selection, error) {
	cfg := &src.Config
	s := order.Selection{Positions: src.positions}
	var err error
	if s.Segments, err = cfg.Segments.Positions(src.Dataset.Info()); err != nil {
		return s, err
	}
	reach := src.windowReach(func(*column.Column) bool { return true })
	if cfg.PadBefore != nil {
		s.First = -*cfg.PadBefore - reach.first
	}
	if cfg.PadAfter != nil {
		s.Last = reach.last - *cfg.PadAfter
	}
	dropped := src.windowReach(func(c *column.Column) bool {
		return c.Axis != nil && src.beyondRule(c) == options.BeyondDrop
	})
	if dropped.isFound {
		s.First, s.Last = max(s.First, -dropped.first), max(s.Last, dropped.last)
	}
	if cfg.DropFirst > 0 {
		s.First = max(s.First, cfg.DropFirst)
	}
	if cfg.DropTail > 0 {
		s.Last = max(s.Last, cfg.DropTail)
	}
	isRestricted := cfg.PadBefore != nil || cfg.PadAfter != nil || dropped.isFound
	switch {
	case isRestricted && (reach.inTime || dropped.inTime):
		return s, robocache.Unsupported("loader", nil,
			"%s, %s and beyond \"drop\" of windows that are not in rows of the samples",
			robocache.Option("pad_before"), robocache.Option("pad_after")).
			WithHint("Pass %s for a timeline, or %s.", robocache.Option("hz"),
				robocache.Option("delta_indices"))
	case (s.First < 0 || s.Last < 0) && src.hasTimedColumn():
		return s, robocache.Unsupported("loader", nil,
			"samples outside their episode for streams that are read by time").
			WithHint("Make %s and %s smaller than the windows, or omit %s.",
				robocache.Option("pad_before"), robocache.Option("pad_after"),
				robocache.Option("hz"))
	}
	return s, nil
}

// orderTable returns the table of the samples of an epoch.
func (src *Source) orderTable() *order.Table {
	if src.weights == nil {
		return src.Table
	}
	weight := func(episode int) float64 {
		if w, isSet := src.weights[episode]; isSet {
			return w
		}
		return 1
	}
	return src.Table.Weighted(weight, src.Config.Shuffle)
}

// windowReach is the first and the last row of windows, relative to the sample.
type windowReach struct {
	first, last int
	isFound     bool // at least one column was selected
	inTime      bool // a window has no rows, because its times are not those of samples
}

// windowReach returns the reach of the windows of some columns. It includes the sample's own row.
func (src *Source) windowReach(selects func(c *column.Column) bool) (reach windowReach) {
	for _, c := range src.Columns {
		if !selects(c) {
			continue
		}
		reach.isFound = true
		var rows []int
		v, isVector := c.Kind.(*column.VectorColumn)
		switch {
		case isVector:
			rows = v.Options.Offsets()
		case c.Axis == nil:
		case c.Time == nil && c.Span == nil:
			rows = src.Windows[c.Window].Offsets
		case src.Timebase.IsGrid && c.Span == nil:
			for _, at := range src.Windows[c.Window].Nanos {
				rows = append(rows, src.gridRow(at))
			}
		default:
			reach.inTime = true
		}
		if len(rows) > 0 {
			reach.first = min(reach.first, slices.Min(rows))
			reach.last = max(reach.last, slices.Max(rows))
		}
	}
	return reach
}

// gridRow returns the row of the timeline at an offset in ns. An offset between two rows is rounded
// away from 0.
func (src *Source) gridRow(offset int64) int {
	distance, sign := offset, 1
	if offset < 0 {
		distance, sign = -offset, -1
	}
	n := int64(float64(distance) / 1e9 * float64(src.Rate.Num) / float64(src.Rate.Den))
	for src.Rate.Nanos(n) < distance-1 { // a row's time may be rounded down by 1 ns
		n++
	}
	return sign * int(n)
}

// beyondRule returns the rule for rows of a column's window that are outside the episode.
func (src *Source) beyondRule(c *column.Column) options.Beyond {
	rules := src.Config.Beyond
	if v, isVector := c.Kind.(*column.VectorColumn); isVector {
		if base := v.Options.DrawKey(); base != c.Key {
			return rules.Of(base)
		}
	}
	return rules.Of(c.Key)
}

// applyBeyond sets how the windows of columns are padded.
func (src *Source) applyBeyond() error {
	for key, rule := range src.Config.Beyond {
		if err := src.checkBeyond(key, rule); err != nil {
			return err
		}
	}
	for _, first := range src.Columns {
		for _, c := range first.Alternatives() {
			if err := src.padWindow(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// padWindow sets the numbers of a column that are 0 in rows outside the episode.
func (src *Source) padWindow(c *column.Column) error {
	rows, rule := c.Table(), src.beyondRule(c)
	if rows == nil || c.Axis == nil || rule != options.BeyondZero &&
		rule != options.BeyondNeutral {
		return nil
	}
	if c.Time != nil {
		return robocache.Unsupported("loader", robocache.Where{"stream": c.Key},
			"beyond %q of a stream that is read by time", rule).
			WithHint("Pass %s.", robocache.Option("align", "edge", "mask"))
	}
	for i := range c.Elements {
		if rule == options.BeyondZero || slices.Contains(c.Feature.Relative, i) {
			rows.ZeroBeyond = append(rows.ZeroBeyond, i)
		}
	}
	return nil
}

// checkBeyond rejects the rule of a key that is unknown, has no window, or cannot be padded so.
func (src *Source) checkBeyond(key string, rule options.Beyond) error {
	if key == "" || src.Config.Vectors.Of(key) != nil && src.Column(key) == nil {
		return nil // all windows, or a vector with separate parts
	}
	c := src.Column(key)
	where := robocache.Where{"stream": key}
	switch pads := rule == options.BeyondZero || rule == options.BeyondNeutral; {
	case c == nil:
		return options.MissingKey(src.Dataset.Info(), "beyond", key, src.columnKeys())
	case pads && column.Is[*column.VectorColumn](c):
		return robocache.Unsupported("loader", where, "beyond %q of a vector", rule).
			WithHint("Pass beyond to its parts: robocache.Part(…, beyond=%q).", rule)
	case c.Axis == nil && !column.Is[*column.VectorColumn](c):
		return options.Misuse("beyond", "a key with a window", key)
	case pads && c.Table() == nil:
		return robocache.Unsupported("loader", where,
			"beyond %q of a stream that has no rows of numbers of one length", rule).
			WithHint(`Pass "repeat" or "drop".`)
	}
	return nil
}
