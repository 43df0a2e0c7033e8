package options

import (
	"slices"

	"github.com/goatnote-inc/robocache"
)

// hasKey says whether a batch of a dataset could have a key.
func hasKey(info *robocache.Info, k string) bool {
	return info.Feature(k) != nil || slices.Contains(GeneratedKeys, k) || k == EpisodeID || k == "task" && (len(info.Tasks) > 0 || info.Feature("task_index") != nil)
}

// ofSource leaves out of the loader's options what names keys that the source does not give: another source has them, and the form says what
// to do about it. What is said of the source itself is taken at its word.
func (c *Config) ofSource(m *Mix) {
	info := m.Dataset.Info()
	has := func(k string) bool { return hasKey(info, k) }
	if m.Keys == nil && c.Keys != nil {
		c.Keys = slices.DeleteFunc(slices.Clone(c.Keys), func(k string) bool { return !has(k) })
	}
	keys := c.Keys
	if m.Keys != nil {
		keys = m.Keys
	}
	gives := func(k string) bool { return has(k) && (keys == nil || slices.Contains(keys, k)) }
	c.Deltas = slices.DeleteFunc(slices.Clone(c.Deltas), func(d Delta) bool { return !gives(d.Key) })
	c.Indices = slices.DeleteFunc(slices.Clone(c.Indices), func(x Index) bool { return !gives(x.Key) })
	c.Native = slices.DeleteFunc(slices.Clone(c.Native), func(w Window) bool { return !gives(w.Key) })
	if c.Anchor != "" && info.Feature(c.Anchor) == nil {
		c.Anchor = "" // its own rows
	}
	c.Normalize.Keys = Only(c.Normalize.Keys, gives)
	if c.Augment != nil {
		c.Augment = c.Augment.Of(gives)
	}
	if c.Align != nil {
		a := *c.Align
		a.Modes, a.Edge.Keys, a.MaxGap.Keys, a.Offset = Only(a.Modes, has), Only(a.Edge.Keys, has), Only(a.MaxGap.Keys, has), Only(a.Offset, has)
		a.Latency, a.Drift, a.Clock = Only(a.Latency, has), Only(a.Drift, has), Only(a.Clock, has)
		a.Period, a.Quats, a.DTypes = Only(a.Period, has), Only(a.Quats, has), Only(a.DTypes, has)
		c.Align = &a
	}
}

// CheckSourceNames refuses options of a mixture that name keys that no source has.
func CheckSourceNames(mix []Mix, cfg *Config) error {
	known := map[string]bool{"task": true, EpisodeID: true}
	var names []string
	for _, k := range GeneratedKeys {
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
			return robocache.Misuse("mixture", robocache.Where{"stream": k}, "%s: no source of the mixture has the key %s", option, k).
				WithHint("%s", robocache.Nearest(k, names))
		}
		return nil
	}
	named := map[string][]string{"keys": cfg.Keys, "normalize": Keys(cfg.Normalize.Keys), "augment": cfg.Augment.Named()}
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
