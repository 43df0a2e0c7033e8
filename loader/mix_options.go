package loader

import (
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// hasKey says whether a batch of a dataset could have a key.
func hasKey(info *robocache.Info, k string) bool {
	return info.Feature(k) != nil || k == "task" && (len(info.Tasks) > 0 || info.Feature("task_index") != nil)
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
	c.Windows = slices.DeleteFunc(slices.Clone(c.Windows), func(w Window) bool { return !gives(w.Key) })
	if c.Anchor != "" && info.Feature(c.Anchor) == nil {
		c.Anchor = "" // its own rows
	}
	c.Normalize.Keys = only(c.Normalize.Keys, gives)
	if c.Augment != nil {
		c.Augment = c.Augment.of(gives)
	}
	if c.Align != nil {
		a := *c.Align
		a.Modes, a.Edge.Keys, a.MaxGap.Keys, a.Offset = only(a.Modes, has), only(a.Edge.Keys, has), only(a.MaxGap.Keys, has), only(a.Offset, has)
		a.Latency, a.Drift, a.Clock = only(a.Latency, has), only(a.Drift, has), only(a.Clock, has)
		a.Period, a.Quats, a.DTypes = only(a.Period, has), only(a.Quats, has), only(a.DTypes, has)
		c.Align = &a
	}
}

func only[T any](m map[string]T, has func(k string) bool) map[string]T {
	if m == nil {
		return nil
	}
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(k string, _ T) bool { return !has(k) })
	return m
}

// checkNamed refuses options of a mixture that name keys that no source has.
func checkNamed(mix []Mix, cfg *Config) error {
	known := map[string]bool{"task": true}
	var names []string
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
			if !known[k] {
				return unknownKey(option, k, names)
			}
		}
		return nil
	}
	var windows []string
	for _, d := range cfg.Deltas {
		windows = append(windows, d.Key)
	}
	var native, anchor, indices []string
	for _, x := range cfg.Indices {
		indices = append(indices, x.Key)
	}
	for i := range cfg.Windows {
		native = append(native, cfg.Windows[i].Key)
	}
	if cfg.Anchor != "" {
		anchor = []string{cfg.Anchor}
	}
	for _, o := range []struct {
		option string
		keys   []string
	}{{"keys", cfg.Keys}, {"delta_timestamps", windows}, {"delta_indices", indices}, {"windows", native}, {"anchor", anchor}, {"normalize", mapKeys(cfg.Normalize.Keys)}, {"augment", cfg.Augment.named()}} {
		if err := check(o.option, o.keys); err != nil {
			return err
		}
	}
	if a := cfg.Align; a != nil {
		named := slices.Concat(a.Named()...)
		slices.Sort(named)
		return check("align", named)
	}
	return nil
}
