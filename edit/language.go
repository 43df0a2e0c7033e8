package edit

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
)

// isLanguageColumn reports whether a key names one of LeRobot's language columns.
func isLanguageColumn(key string) bool {
	return key == write.LanguagePersistent || key == write.LanguageEvents
}

// isAnnotated reports whether the plan changes texts of the language columns.
func (p *Plan) isAnnotated() bool {
	return slices.ContainsFunc(p.Episodes, func(e Episode) bool { return len(e.Language) > 0 })
}

// applyLanguage applies the plan to rows of a language column. It changes texts, which holds the
// JSON lists of the source.
func (v *planDataset) applyLanguage(key string, rows []robocache.Row, texts []string) error {
	last, source, changed := -1, "", ""
	for i, r := range rows {
		p, err := v.planEpisode(r.Episode)
		if err != nil {
			return err
		}
		isPersistent := key == write.LanguagePersistent
		if len(p.Language) == 0 && (p.From == 0 || !isPersistent) {
			continue
		}
		if isPersistent && r.Episode == last && texts[i] == source {
			texts[i] = changed // all rows of an episode have the same list
			continue
		}
		for _, x := range p.Language {
			if x.Camera != "" && v.info.Feature(x.Camera) == nil {
				return misuse(robocache.Where{"stream": x.Camera},
					"texts refer to a camera that the result lacks", "Annotate after other edits.")
			}
		}
		var items []write.LanguageItem
		if texts[i] != "" {
			if err := json.Unmarshal([]byte(texts[i]), &items); err != nil {
				return robocache.Malformed("edit", robocache.Where{
					"episode": v.info.EpisodeIndex(r.Episode), "stream": key,
				}, "").Expected("a JSON list of objects", "").WithCause(err)
			}
		}
		last, source = r.Episode, texts[i]
		if isPersistent {
			items = p.persistentItems(items, v.plan.FPS.Float())
		} else {
			items = p.eventItems(items, p.From+r.Index)
		}
		b, err := json.Marshal(items)
		if err != nil {
			return err
		}
		texts[i] = string(b)
		changed = texts[i]
	}
	return nil
}

// isReplaced reports whether the plan replaces the source's item.
func (p *Episode) isReplaced(x write.LanguageItem) bool {
	return x.Style != nil && slices.Contains(p.Replaced, *x.Style)
}

// persistentItems returns the items of an episode: those of the source that the plan keeps, and the
// planned ones. The timestamp of a row is its distance from the first planned row at the rate fps.
func (p *Episode) persistentItems(source []write.LanguageItem, fps float64) []write.LanguageItem {
	timeOf := func(row int) float64 { return float64(float32(float64(row-p.From) / fps)) }
	kept := p.trimItems(slices.DeleteFunc(slices.Clone(source), p.isReplaced), fps)
	out := slices.Clone(kept)
	ranges := slices.Clone(p.Language)
	for i, x := range ranges {
		style := languageStyles[x.Style]
		from, to := max(x.From, p.From), min(x.To, p.To)
		if style.isEvent() || from >= to {
			continue
		}
		begin, end := timeOf(from), timeOf(to)
		if style.isWhole {
			out = append(out, x.newItem(x.Text, &begin))
			continue
		}
		out = slices.DeleteFunc(out, func(y write.LanguageItem) bool {
			return y.Style != nil && *y.Style == x.Style && y.Timestamp != nil &&
				*y.Timestamp >= begin && *y.Timestamp < end
		})
		isFollowed := to == p.To || slices.ContainsFunc(ranges[i+1:], func(y Language) bool {
			return y.Style == x.Style && y.From == to
		}) || slices.ContainsFunc(out, func(y write.LanguageItem) bool {
			return y.Style != nil && *y.Style == x.Style && y.Timestamp != nil &&
				*y.Timestamp == end
		})
		out = append(out, x.newItem(x.Text, &begin))
		if !isFollowed { // LeRobot's texts stay active until the next one of their style
			text := write.ActiveText(kept, x.Style, end)
			out = append(out, x.newItem(text, &end))
		}
	}
	slices.SortStableFunc(out, func(x, y write.LanguageItem) int {
		return cmp.Or(
			cmp.Compare(timestampOf(x), timestampOf(y)),
			strings.Compare(textOf(x.Style), textOf(y.Style)),
			strings.Compare(textOf(x.Role), textOf(y.Role)),
		)
	})
	return out
}

// trimItems shifts the timestamps of items so that the first planned row has time 0. It drops the
// items before that row, except those that are still active there. These get time 0.
func (p *Episode) trimItems(items []write.LanguageItem, fps float64) (out []write.LanguageItem) {
	if p.From == 0 {
		return items
	}
	start := float64(float32(float64(p.From) / fps))
	active := map[string]float64{} // by style: timestamp of the items that are active at start
	for _, x := range items {
		if t := timestampOf(x); t <= start {
			style := textOf(x.Style)
			if last, ok := active[style]; !ok || t > last {
				active[style] = t
			}
		}
	}
	for _, x := range items {
		t := timestampOf(x)
		if t <= start && t < active[textOf(x.Style)] {
			continue
		}
		moved := max(0, t-start)
		x.Timestamp = &moved
		out = append(out, x)
	}
	return out
}

// eventItems returns the items of a row of the source: those of the source that the plan keeps, and
// the planned ones.
func (p *Episode) eventItems(source []write.LanguageItem, row int) []write.LanguageItem {
	out := slices.DeleteFunc(slices.Clone(source), p.isReplaced)
	for _, x := range p.Language {
		style := languageStyles[x.Style]
		if style.isEvent() && x.From == row {
			out = append(out, x.newItem(x.Text, nil))
		}
	}
	return out
}

// newItem returns an item of a language column. seconds is nil for an event.
func (x Language) newItem(text string, seconds *float64) write.LanguageItem {
	role := cmp.Or(x.Role, languageStyles[x.Style].role)
	item := write.LanguageItem{Role: &role, Content: &text, Style: &x.Style, Timestamp: seconds}
	if x.Camera != "" {
		item.Camera = &x.Camera
	}
	return item
}

// timestampOf returns the timestamp of an item, or 0.
func timestampOf(x write.LanguageItem) float64 {
	if x.Timestamp == nil {
		return 0
	}
	return *x.Timestamp
}

// textOf returns *s, or "" if s is nil.
func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
