package edit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// restPart is the name of the part with all rows without a flag.
const restPart = "rest"

// splitByFlags makes a part for each label in a file of flags, and one for the remaining rows. An
// episode with flagged rows becomes several episodes: those rows, and the rows before and after
// them.
func (e *editor) splitByFlags(ctx context.Context, v *Verb) error {
	where := robocache.Where{"file": v.Flags}
	hasOtherRule := v.By+v.Stratify+v.Group != "" || v.Seed != nil || len(v.Into) > 0
	switch {
	case hasOtherRule:
		return misuse(
			where,
			"split: the flags name the parts",
			"Leave into, by, seed, stratify and group out.",
		)
	case e.plan.Cut == CutSnap:
		return misuse(
			where,
			"split: a cut that moves would leave rows in two parts",
			"Pass "+robocache.Option("cut", "hidden")+" or "+robocache.Option("cut", "exact"),
		)
	}
	view, err := e.openPlan(ctx)
	if err != nil {
		return err
	}
	defer view.Close()
	file, err := e.readFlagFile(ctx, v.Flags)
	if err != nil {
		return err
	}
	if v.Label != "" {
		if err := robocache.At(file.Choose(v.Label), where); err != nil {
			return err
		}
	}
	flagged := map[int][]planFlag{} // by position in the plan
	located, err := e.locateFlags(ctx, v.Flags, file, view)
	if err != nil {
		return err
	}
	for _, f := range located {
		flagged[f.position] = append(flagged[f.position], f)
	}
	parts := map[string][]Episode{} // by label
	var rest []Episode
	for i, p := range e.plan.Episodes {
		flags, err := mergeFlags(v.Flags, view.info.EpisodeIndex(i), flagged[i], p.From, p.To)
		if err != nil {
			return err
		}
		next := p.From // first row that is in no part yet
		for _, f := range flags {
			rest = appendRows(rest, p, next, f.rows[0])
			parts[f.label] = appendRows(parts[f.label], p, f.rows[0], f.rows[1])
			next = f.rows[1]
		}
		rest = appendRows(rest, p, next, p.To)
	}
	if len(parts) == 0 {
		return misuse(where, "split: no episode and no row is flagged", "")
	}
	taken := map[string]bool{restPart: true}
	for _, label := range slices.Sorted(maps.Keys(parts)) {
		e.addPart(folderName(label, "flagged", taken), parts[label])
	}
	if len(rest) > 0 {
		e.addPart(restPart, rest)
	}
	return nil
}

// appendRows appends the rows [from, to) of an episode if there are any.
func appendRows(part []Episode, p Episode, from, to int) []Episode {
	if from >= to {
		return part
	}
	p.From = from
	p.To = to
	return append(part, p)
}

// mergeFlags returns the flags of one episode in order and without overlap, within the source rows
// [from, to). Adjacent flags with the same label become one. Rows with two labels are an error.
func mergeFlags(
	file string,
	episode int64,
	all []planFlag,
	from, to int,
) (out []planFlag, err error) {
	for i := range all {
		rows := []int{from, to}
		if given := all[i].rows; len(given) == 2 {
			rows = []int{max(given[0], from), min(given[1], to)}
		}
		all[i].rows = rows
	}
	// A flag is empty if an earlier verb cut off its rows.
	all = slices.DeleteFunc(all, func(f planFlag) bool { return f.rows[0] >= f.rows[1] })
	slices.SortStableFunc(all, func(a, b planFlag) int { return a.rows[0] - b.rows[0] })
	for _, f := range all {
		if len(out) > 0 {
			last := &out[len(out)-1]
			switch {
			case last.label == f.label && f.rows[0] <= last.rows[1]:
				last.rows[1] = max(last.rows[1], f.rows[1])
				continue
			case f.rows[0] < last.rows[1]:
				msg := fmt.Sprintf("split: rows %d to %d are flagged both %q and %q",
					f.rows[0], min(f.rows[1], last.rows[1]), last.label, f.label)
				return out, misuse(
					robocache.Where{"file": file, "episode": episode},
					msg,
					"Choose one with "+robocache.Option("label"),
				)
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// repeatsEpisodes reports whether several episodes of the plan come from the same source episode.
func (p *Plan) repeatsEpisodes() bool {
	type sourceEpisode struct{ source, episode int }
	seen := map[sourceEpisode]bool{}
	for _, e := range p.Episodes {
		id := sourceEpisode{e.Source, e.Episode}
		if seen[id] {
			return true
		}
		seen[id] = true
	}
	return false
}
