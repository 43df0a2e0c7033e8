package options

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// CheckWithheld rejects a dataset with a stream that it declares and cannot deliver, unless Keys
// selects streams. Keys in known are available regardless.
func (c *Config) CheckWithheld(info *robocache.Info, known []string) error {
	for i := range info.Findings {
		f := &info.Findings[i]
		if c.Keys == nil && f.Severity == robocache.SeverityError && f.NotDelivered != "" &&
			!slices.Contains(known, f.NotDelivered) {
			var e *robocache.Error
			err := info.Withheld(f.NotDelivered)
			if errors.As(err, &e) {
				e.Hint = robocache.Option("keys") +
					" names what is wanted and goes on without it; or: " + e.Hint
			}
			return err
		}
	}
	return nil
}

// checkAlign rejects alignment options that a loader does not support.
func (c *Config) checkAlign() error {
	a := c.Align
	switch {
	case a == nil:
		return nil
	case a.Times != nil:
		return robocache.Unsupported("loader", nil, "align: times in a loader").
			WithHint("give %s; times is for one episode's align", robocache.Option("hz"))
	case len(a.Keys) > 0:
		return Misuse(
			"align keys",
			"none: "+robocache.Option("keys")+" of the loader chooses",
			fmt.Sprint(a.Keys),
		)
	case !a.HZ.Zero() && (a.HZ.Num < 0 || a.HZ.Den <= 0):
		return Misuse("align", "hz, a rate above 0", a.HZ.String())
	case a.HZ.Zero() && a.Extent != "":
		return Misuse("align extent", "extent beside hz: it is of a uniform timeline", a.Extent)
	case a.Window < 0:
		return Misuse("align window", "0 or more", fmt.Sprint(int64(a.Window)))
	}
	return cmp.Or(a.CheckCausal(), a.CheckShifts())
}

// HasWindow reports whether a key has a window of any kind.
func (c *Config) HasWindow(key string) bool {
	return c.Deltas.Of(key) != nil || c.Indices.Of(key) != nil || c.Native.Of(key) != nil
}

// CheckWindows rejects windows of unknown or unselected keys, and two windows of one key. wanted
// reports whether a key is delivered.
func (c *Config) CheckWindows(
	info *robocache.Info, known []string, wanted func(string) bool,
) error {
	vectors := c.Vectors.SplitParts()
	check := func(option, key string, hasOther bool) error {
		switch {
		case vectors.Of(key) != nil:
			return Misuse(option, "rows of the vector "+key+" in its own options", "a window")
		case !slices.Contains(known, key):
			return MissingKey(info, option, key, known)
		case !wanted(key):
			return robocache.Misuse(
				"loader",
				nil,
				"%s names %s, which keys leaves out",
				option,
				key,
			)
		case hasOther:
			return Misuse(option, option+" or another window of "+key, "both")
		}
		return nil
	}
	for _, d := range c.Deltas {
		if err := check("delta_timestamps", d.Key, false); err != nil {
			return err
		}
		if len(d.Offsets) == 0 {
			return Misuse("delta_timestamps", "at least one offset for "+d.Key, "none")
		}
	}
	for _, x := range c.Indices {
		if err := check("delta_indices", x.Key, c.Deltas.Of(x.Key) != nil); err != nil {
			return err
		}
		if len(x.Rows) == 0 || len(x.Rows) > MaxSteps {
			return Misuse("delta_indices", "1 to 2^20 offsets for "+x.Key, fmt.Sprint(len(x.Rows)))
		}
		if slices.Min(x.Rows) < -MaxSteps || slices.Max(x.Rows) > MaxSteps {
			want := fmt.Sprintf("rows within ±%d for %s", MaxSteps, x.Key)
			return Misuse("delta_indices", want, Clip(fmt.Sprint(x.Rows)))
		}
	}
	for i := range c.Native {
		key := c.Native[i].Key
		if err := check("windows", key, c.Deltas.Of(key) != nil ||
			c.Indices.Of(key) != nil); err != nil {
			return err
		}
	}
	return nil
}
