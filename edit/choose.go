package edit

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/query"
)

// Choice selects the episodes for which all given conditions hold. The zero value selects all
// episodes.
type Choice struct {
	Episodes string `json:"episodes,omitempty"` // episode indices: 0,3,5-9
	// Task is a pattern (*, ?, […]). It must match one of the episode's tasks.
	Task  string `json:"task,omitempty"`
	Flags string `json:"flags,omitempty"` // file of flags, or of episode indices
	Label string `json:"label,omitempty"` // selects only the flags with this label
	// Where is an expression of package query, such as length < 30 or max(action[gripper]) > 1.2.
	Where string `json:"where,omitempty"`
	// selects the other episodes: those for which at least one condition does not hold
	Invert bool `json:"invert,omitempty"`
}

// isSet reports whether the choice has a condition.
func (c *Choice) isSet() bool { return c.Episodes+c.Task+c.Flags+c.Where != "" }

// numberedInfo returns an Info that holds only the numbers of the plan's episodes. It converts
// between these numbers, by which messages and choices name episodes, and positions in the plan.
func (e *editor) numberedInfo() *robocache.Info {
	info := &robocache.Info{URI: e.srcs[0].Info().URI, Episodes: len(e.plan.Episodes)}
	info.NumberEpisodes(e.plan.episodeNumbers(e.srcs))
	return info
}

// planFlag is a flag of a file, with the position of its episode in the plan.
type planFlag struct {
	position int
	label    string
	rows     []int // rows [from, to) of the source episode; nil: all rows
}

// flagsWithLabel returns the flags of a file that have the label.
func (e *editor) flagsWithLabel(
	ctx context.Context,
	path, label string,
	v *planDataset,
) ([]planFlag, error) {
	file, err := e.readFlagFile(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := robocache.At(file.Choose(label), robocache.Where{"file": path}); err != nil {
		return nil, err
	}
	return e.locateFlags(ctx, path, file, v)
}

// readFlagFile reads a file of flags and checks that it belongs to the source.
func (e *editor) readFlagFile(ctx context.Context, path string) (*flags.File, error) {
	file, err := flags.Read(ctx, path)
	if err != nil {
		return nil, err
	}
	if len(e.srcs) > 1 {
		return nil, misuse(
			robocache.Where{"file": path},
			"flags belong to one dataset: apply them before the merge",
			"",
		)
	}
	if err := robocache.At(file.Check(ctx, e.srcs[0]), robocache.Where{"file": path}); err != nil {
		return nil, err
	}
	return file, nil
}

// locateFlags returns the flags of a file with their positions in the plan.
func (e *editor) locateFlags(
	ctx context.Context,
	path string,
	file *flags.File,
	v *planDataset,
) (out []planFlag, err error) {
	positions := map[int64]int{}
	for i, p := range v.plan.Episodes {
		episode, err := e.srcs[0].Episode(ctx, p.Episode)
		if err != nil {
			return out, err
		}
		positions[episode.Index] = i
	}
	for _, f := range file.Flags {
		i, ok := positions[f.Episode]
		switch {
		case ok && f.Length > 0 && f.Length != e.srcs[0].Len(v.plan.Episodes[i].Episode):
			return out, misuse(
				robocache.Where{"file": path, "episode": f.Episode},
				"the episode has a different length than when it was flagged",
				"Flag it again.",
			)
		case ok:
			out = append(out, planFlag{i, f.Label, f.Rows})
		default:
			// An earlier verb may have deleted the episode. It is an error only if the source does
			// not have the episode either.
			_, err := e.srcs[0].Info().EpisodePosition(f.Episode)
			if err := robocache.At(err, robocache.Where{"file": path}); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// chooseEpisodes returns the positions in the plan that a choice selects. If the choice lists
// episode numbers, the positions are in the order of that list.
func (e *editor) chooseEpisodes(ctx context.Context, c *Choice) ([]int, error) {
	if c.Label != "" && c.Flags == "" {
		return nil, misuse(
			nil,
			"a label without a file of flags",
			"Name the file: "+robocache.Option("flags"),
		)
	}
	chosen, err := e.listedPositions(c.Episodes)
	if err != nil {
		return nil, err
	}
	if c.Task+c.Where+c.Flags != "" {
		v, err := e.openPlan(ctx)
		if err != nil {
			return nil, err
		}
		defer v.Close()
		if chosen, err = e.filterPositions(ctx, v, c, chosen); err != nil {
			return nil, err
		}
	}
	if c.Invert {
		chosen = e.otherPositions(chosen)
	}
	return chosen, nil
}

// listedPositions returns the positions of a list of episode numbers without repetitions, or all
// positions if the list is empty.
func (e *editor) listedPositions(list string) (out []int, err error) {
	if list == "" {
		for i := range e.plan.Episodes {
			out = append(out, i)
		}
		return out, nil
	}
	positions, err := e.numberedInfo().ParseEpisodes(list)
	if err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	for _, i := range positions {
		if !seen[i] {
			out = append(out, i)
		}
		seen[i] = true
	}
	return out, nil
}

// otherPositions returns the positions in the plan that are not chosen.
func (e *editor) otherPositions(chosen []int) (out []int) {
	isChosen := map[int]bool{}
	for _, i := range chosen {
		isChosen[i] = true
	}
	for i := range e.plan.Episodes {
		if !isChosen[i] {
			out = append(out, i)
		}
	}
	return out
}

// filterPositions returns the positions whose episodes match the flags, the task and the condition
// of a choice.
func (e *editor) filterPositions(
	ctx context.Context,
	v *planDataset,
	c *Choice,
	positions []int,
) (_ []int, err error) {
	if c.Flags != "" {
		flagged, err := e.flaggedPositions(ctx, c, v)
		if err != nil {
			return nil, err
		}
		isFlagged := func(i int) (bool, error) { return flagged[i], nil }
		if positions, err = keepMatching(positions, isFlagged); err != nil {
			return nil, err
		}
	}
	if c.Task != "" {
		if _, err := path.Match(c.Task, ""); err != nil {
			return nil, misuse(
				nil,
				"task: "+strconv.Quote(c.Task)+" is no pattern",
				"Use *, ? and […] as wildcards.",
			)
		}
		hasTask := func(i int) (bool, error) { return v.hasTaskLike(ctx, i, c.Task) }
		if positions, err = keepMatching(positions, hasTask); err != nil {
			return nil, err
		}
	}
	if c.Where != "" {
		where, err := query.Parse(c.Where)
		if err != nil {
			return nil, err
		}
		bound, err := where.Bind(ctx, v, query.Options{})
		if err != nil {
			return nil, err
		}
		if positions, err = bound.Matching(ctx, positions); err != nil {
			return nil, err
		}
	}
	return positions, nil
}

// keepMatching returns the positions for which matches returns true.
func keepMatching(positions []int, matches func(i int) (bool, error)) (out []int, err error) {
	for _, i := range positions {
		ok, err := matches(i)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, i)
		}
	}
	return out, nil
}

// flaggedPositions returns the positions of the flagged episodes. It returns an error if a flag
// marks only some rows of an episode.
func (e *editor) flaggedPositions(
	ctx context.Context,
	c *Choice,
	v *planDataset,
) (map[int]bool, error) {
	flags, err := e.flagsWithLabel(ctx, c.Flags, c.Label, v)
	if err != nil {
		return nil, err
	}
	flagged := map[int]bool{}
	for _, f := range flags {
		if len(f.rows) > 0 {
			where := robocache.Where{
				"file":    c.Flags,
				"episode": v.info.EpisodeIndex(f.position),
			}
			msg := fmt.Sprintf(
				"the flag marks rows %d to %d, but the verb needs whole episodes",
				f.rows[0],
				f.rows[1],
			)
			return nil, misuse(where, msg, "Cut flagged rows off with "+
				robocache.Command("edit trim --flags=FILE")+", split them off with "+
				robocache.Command("edit split --flags=FILE")+", or choose other flags with "+
				robocache.Option("label"))
		}
		flagged[f.position] = true
	}
	return flagged, nil
}

// hasTaskLike reports whether a task of the episode at position i matches the pattern. A slash in
// the text is an ordinary character.
func (v *planDataset) hasTaskLike(ctx context.Context, i int, pattern string) (bool, error) {
	episode, err := v.Episode(ctx, i)
	if err != nil {
		return false, err
	}
	plain := func(text string) string { return strings.ReplaceAll(text, "/", "\x01") }
	return slices.ContainsFunc(episode.Tasks, func(text string) bool {
		ok, _ := path.Match(plain(pattern), plain(text))
		return ok
	}), nil
}

// SourceOf implements query.Merged.
func (v *planDataset) SourceOf(i int) int { return v.plan.Episodes[i].Source }

// SourceDatasets implements query.Merged.
func (v *planDataset) SourceDatasets() []robocache.Dataset { return v.srcs }
