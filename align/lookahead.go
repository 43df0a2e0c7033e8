package align

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// LookAhead returns the finding look-ahead: how far past a tick the alignment reads observations.
// It considers the streams that keys names, or all if keys is nil. It returns nil if none reads
// past a tick. Actions and rewards are labels and may look ahead. Relative streams are left out,
// because a mode other than sum does not keep their totals. It reads timestamps of the first
// episode if a stream states no rate.
func (c *Config) LookAhead(
	ctx context.Context,
	ds robocache.Dataset,
	keys []string,
) (*robocache.Finding, error) {
	info := ds.Info()
	byReach := map[int64][]string{}
	periods := map[string]int64{}
	for i := range info.Features {
		f := &info.Features[i]
		if f.Default || f.Latched || isLabel(f.Key) ||
			keys != nil && !slices.Contains(keys, f.Key) ||
			c.isRelative(f) ||
			c.rowsPerTick(info, f) > 0 {
			continue
		}
		if reach, err := c.reachPastTick(ctx, ds, f, periods); err != nil {
			return nil, err
		} else if reach > 0 {
			byReach[reach] = append(byReach[reach], f.Key)
		}
	}
	if len(byReach) == 0 {
		return nil, nil
	}
	reaches := slices.Collect(maps.Keys(byReach))
	slices.SortFunc(reaches, func(a, b int64) int { return cmp.Compare(b, a) })
	var parts []string
	for _, reach := range reaches[:min(len(reaches), 4)] {
		names := byReach[reach]
		text := fmt.Sprintf(
			"%.1f ms of %s",
			float64(reach)/1e6,
			strings.Join(names[:min(len(names), 3)], ", "),
		)
		if len(names) > 3 {
			text += fmt.Sprintf(" and %d more", len(names)-3)
		}
		parts = append(parts, text)
	}
	subject := "observations on another clock"
	if !c.HZ.Zero() {
		subject = "observations at " + c.HZ.String() + " Hz"
	}
	return &robocache.Finding{
		Severity: robocache.SeverityInfo, Code: "look-ahead",
		Message: subject + " use samples from after the tick, at most " + strings.Join(parts, ", "),
		Hint: "Pass " + robocache.Option("align", PresetCausal) +
			" to use only samples that a robot has at the tick",
	}, nil
}

// isLabel reports whether a stream is an action or a reward, by its name. Past actions that a
// policy observes are not labels.
func isLabel(key string) bool {
	labels := []string{"action", "actions", "next", "reward", "rewards", "done", "dones", "success"}
	parts := strings.Split(key, ".")
	if slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(labels, part) }) {
		return true
	}
	if parts[0] == "observation" || parts[0] == "observations" || parts[0] == "obs" {
		return false
	}
	words := strings.FieldsFunc(
		strings.ToLower(key),
		func(r rune) bool { return strings.ContainsRune("._-/ ", r) },
	)
	has := func(known ...string) bool {
		return slices.ContainsFunc(
			words,
			func(word string) bool { return slices.Contains(known, word) },
		)
	}
	return has("action", "actions") && !has("last", "past", "prev", "previous")
}

// rowsPerTick returns how many rows one tick spans if every tick falls on a sample of f: the rate
// of the dataset is a multiple of hz, and all streams have the dataset's rows as samples. Otherwise
// it returns 0.
func (c *Config) rowsPerTick(info *robocache.Info, f *robocache.Feature) int {
	severalClocks := info.Clock != "" ||
		slices.ContainsFunc(info.Features, func(o robocache.Feature) bool { return o.Clock != "" })
	shifted := c.Offset[f.Key] != c.Latency[f.Key].Fixed || !c.Drift[f.Key].IsZero() ||
		c.Clock[f.Key] != ""
	if mode, _ := c.Mode(f); severalClocks || shifted || c.HZ.Zero() || mode == Mean {
		return 0
	}
	rate := info.FPS
	if !f.FPS.Zero() {
		rate = f.FPS
	}
	ratio := rate.Float() / c.HZ.Float()
	if ratio < 1-1e-9 || math.Abs(ratio-math.Round(ratio)) >= 1e-9*ratio {
		return 0
	}
	return int(math.Round(ratio))
}

// reachPastTick returns how many nanoseconds past a tick the newest sample of f can lie. It returns
// 0 if there is none or if this is unknown. periods caches the periods of clocks.
func (c *Config) reachPastTick(
	ctx context.Context, ds robocache.Dataset, f *robocache.Feature, periods map[string]int64,
) (int64, error) {
	mode, _ := c.Mode(f)
	if mode == Previous || c.IsCausal(f.Key) {
		return 0, nil
	}
	if mode == Mean && (c.Window > 0 || !c.HZ.Zero()) {
		window := int64(c.Window)
		if window == 0 {
			window = c.HZ.Nanos(1)
		}
		_, after := HalfWindows(window)
		return after, nil
	}
	period, err := samplePeriod(ctx, ds, f, periods)
	if err != nil {
		return 0, err
	}
	if mode == Nearest {
		return period / 2, nil
	}
	return period, nil
}

// samplePeriod returns the period of f in nanoseconds: from its stated rate, or else the median
// step of the first episode that has one. It returns 0 if the period is unknown.
func samplePeriod(
	ctx context.Context, ds robocache.Dataset, f *robocache.Feature, periods map[string]int64,
) (int64, error) {
	rate := f.FPS
	if rate.Zero() && f.Clock == "" {
		rate = ds.Info().FPS
	}
	if !rate.Zero() {
		return rate.Nanos(1), nil
	}
	if period, ok := periods[f.Clock]; ok {
		return period, nil
	}
	var period int64
	for e := range min(ds.Info().Episodes, 4) {
		times, err := ds.Times(ctx, e, f.Key)
		if robocache.IsFatal(err) {
			return 0, err
		}
		if err != nil || len(times) < 2 {
			continue // The error is reported when the episode is read.
		}
		steps := make([]int64, len(times)-1)
		for i := range steps {
			steps[i] = times[i+1] - times[i]
		}
		slices.Sort(steps)
		if period = steps[len(steps)/2]; period > 0 {
			break
		}
	}
	periods[f.Clock] = max(period, 0)
	return periods[f.Clock], nil
}
