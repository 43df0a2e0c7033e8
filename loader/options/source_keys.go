package options

import (
	"cmp"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// hasKey reports whether a batch of a dataset can have a key.
func hasKey(info *robocache.Info, k string, generated []string) bool {
	hasTasks := len(info.Tasks) > 0 || info.Feature("task_index") != nil
	return info.Feature(k) != nil || slices.Contains(generated, k) ||
		k == "task" && hasTasks
}

// limitToSource removes keys from the loader's options that the source does not deliver, because
// another source may have them. Options of the source itself are not changed, so that wrong keys in
// them are errors.
func (c *Config) limitToSource(m *Mix, generated []string) {
	info := m.Dataset.Info()
	hasStream := func(k string) bool { return hasKey(info, k, generated) }
	c.Choose, c.Goal = keepDrawn(c.Choose, hasStream), keepDrawn(c.Goal, hasStream)
	has := func(k string) bool { return hasStream(k) || c.DrawnKey(k) != nil }
	if m.Keys == nil && c.Keys != nil {
		c.Keys = slices.DeleteFunc(slices.Clone(c.Keys), func(k string) bool { return !has(k) })
	}
	keys := c.Keys
	if m.Keys != nil {
		keys = m.Keys
	}
	isDelivered := func(k string) bool {
		return has(k) && (keys == nil || slices.Contains(keys, k) || c.DrawnKey(k) != nil)
	}
	if c.Anchor != "" && info.Feature(c.Anchor) == nil {
		c.Anchor = "" // the dataset's rows
	}
	c.limitKeys(isDelivered, has)
}

// KeepKeys removes all keys for which has is false from the options that name keys.
func (c *Config) KeepKeys(has func(key string) bool) { c.limitKeys(has, has) }

// limitKeys removes keys from the options that name keys. isDelivered decides for options of
// delivered keys. has decides for options of streams that are only read, such as those of the
// alignment and of vectors.
func (c *Config) limitKeys(isDelivered, has func(key string) bool) {
	c.Deltas = slices.DeleteFunc(
		slices.Clone(c.Deltas),
		func(d Delta) bool { return !isDelivered(d.Key) },
	)
	c.Indices = slices.DeleteFunc(
		slices.Clone(c.Indices),
		func(x Index) bool { return !isDelivered(x.Key) },
	)
	c.Native = slices.DeleteFunc(
		slices.Clone(c.Native),
		func(w Window) bool { return !isDelivered(w.Key) },
	)
	c.Normalize.Keys = Only(c.Normalize.Keys, isDelivered)
	c.Beyond = Only(c.Beyond, func(k string) bool {
		return k == "" || isDelivered(k) || c.Vectors.Of(k) != nil
	})
	c.Text = Only(c.Text, isDelivered)
	c.Vectors = slices.DeleteFunc(slices.Clone(c.Vectors), func(v Vector) bool {
		return slices.ContainsFunc(v.Needs(), func(k string) bool { return !has(k) })
	})
	if c.Augment != nil {
		c.Augment = c.Augment.ForSource(isDelivered)
	}
	if c.Align != nil {
		a := *c.Align
		a.Modes = Only(a.Modes, has)
		a.Edge.Keys = Only(a.Edge.Keys, has)
		a.MaxGap.Keys = Only(a.MaxGap.Keys, has)
		a.Offset = Only(a.Offset, has)
		a.Latency = Only(a.Latency, has)
		a.Delay.Keys = Only(a.Delay.Keys, has)
		a.MaxAge.Keys = Only(a.MaxAge.Keys, has)
		a.Stale.Keys = Only(a.Stale.Keys, has)
		a.ArrivalDelay.Keys = Only(a.ArrivalDelay.Keys, has)
		a.Targets = slices.DeleteFunc(slices.Clone(a.Targets),
			func(k string) bool { return !has(k) })
		a.Drift = Only(a.Drift, has)
		a.Clock = Only(a.Clock, has)
		a.Period = Only(a.Period, has)
		a.Quats = Only(a.Quats, has)
		a.Rotations = Only(a.Rotations, has)
		a.Relative = Only(a.Relative, has)
		a.DTypes = Only(a.DTypes, has)
		c.Align = &a
	}
}

// CheckSourceNames rejects options of a mixture that name a key that no source has. generated lists
// the keys that any dataset has on request.
func CheckSourceNames(mix []Mix, cfg *Config, generated []string) error {
	known := map[string]bool{"task": true}
	var names []string
	for _, k := range generated {
		known[k] = true
	}
	for i := range mix {
		if mix[i].Dataset == nil {
			continue
		}
		for _, f := range mix[i].Dataset.Info().Features {
			if !known[f.Key] {
				known[f.Key] = true
				names = append(names, f.Key)
			}
		}
	}
	check := func(option string, keys []string) error {
		for _, k := range keys {
			if known[k] {
				continue
			}
			for i := range mix {
				if mix[i].Dataset != nil {
					if err := mix[i].Dataset.Info().Withheld(k); err != nil {
						return robocache.At(err, PlaceOfSource(i, &mix[i]))
					}
				}
			}
			return robocache.Misuse("mixture", robocache.Where{"stream": k},
				"%s: no source of the mixture has the key %s", option, k).
				WithHint("%s", robocache.Nearest(k, names))
		}
		return nil
	}
	if err := cmp.Or(check("choose", drawnStreams(cfg.Choose)),
		check("goal", drawnStreams(cfg.Goal))); err != nil {
		return err
	}
	for _, x := range cfg.DrawnKeys() {
		known[x.Key] = true
	}
	named := map[string][]string{
		"keys":      cfg.Keys,
		"normalize": Keys(cfg.Normalize.Keys),
		"augment":   cfg.Augment.Named(),
		"vectors":   cfg.Vectors.Needs(),
		"beyond":    cfg.Beyond.streams(cfg.Vectors),
		"text":      Keys(cfg.Text),
	}
	for _, d := range cfg.Deltas {
		named["delta_timestamps"] = append(named["delta_timestamps"], d.Key)
	}
	for _, x := range cfg.Indices {
		named["delta_indices"] = append(named["delta_indices"], x.Key)
	}
	for _, w := range cfg.Native {
		named["windows"] = append(named["windows"], w.Key)
	}
	if cfg.Anchor != "" {
		named["anchor"] = []string{cfg.Anchor}
	}
	if cfg.Align != nil {
		named["align"] = slices.Sorted(slices.Values(slices.Concat(cfg.Align.Named()...)))
	}
	for _, option := range Keys(named) {
		if err := check(option, named[option]); err != nil {
			return err
		}
	}
	return nil
}
