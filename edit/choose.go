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
)

// Choice selects the episodes for which all given conditions hold. The zero value selects all
// episodes.
type Choice struct {
	Episodes string `json:"episodes,omitempty"` // episode indices: 0,3,5-9
	// Task is a pattern (*, ?, […]). It must match one of the episode's tasks.
	Task  string `json:"task,omitempty"`
	Flags string `json:"flags,omitempty"` // file of flags, or of episode indices
	Label string `json:"label,omitempty"` // selects only the flags with this label
	// Where is an expression, such as length < 30 or max(action[gripper]) > 1.2.
	Where string `json:"where,omitempty"`
	// selects the episodes for which the conditions do not hold
	Invert bool `json:"invert,omitempty"`
}

// isSet reports whether the choice has a condition.
func (c *Choice) isSet() bool { return c.Episodes+c.Task+c.Flags+c.Where != "" }

// numberedInfo returns an Info with the numbers of the plan's episodes. Messages and choices use
// them.
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
	return e.placeFlags(ctx, path, file, v)
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
			"flags are of one dataset: edit it before it is merged",
			"",
		)
	}
	if err := robocache.At(file.Check(ctx, e.srcs[0]), robocache.Where{"file": path}); err != nil {
		return nil, err
	}
	return file, nil
}

// placeFlags returns the flags of a file with their positions in the plan.
func (e *editor) placeFlags(
	ctx context.Context,
	path string,
	file *flags.File,
	v *planDataset,
) (out []planFlag, err error) {
	places := map[int64]int{}
	for i, p := range v.plan.Episodes {
		episode, err := e.srcs[0].Episode(ctx, p.Episode)
		if err != nil {
			return out, err
		}
		places[episode.Index] = i
	}
	for _, f := range file.Flags {
		i, ok := places[f.Episode]
		switch {
		case ok && f.Length > 0 && f.Length != e.srcs[0].Len(v.plan.Episodes[i].Episode):
			return out, misuse(
				robocache.Where{"file": path, "episode": f.Episode},
				"the episode has a different length than when it was flagged",
				"Flag it again.",
			)
		case ok:
			out = append(out, planFlag{i, f.Label, f.Rows})
		// An earlier verb may have deleted the episode.
		default:
			_, err := e.srcs[0].Info().EpisodePosition(f.Episode)
			if err := robocache.At(err, robocache.Where{"file": path}); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// chooseEpisodes returns the positions in the plan that a choice selects. If the choice lists
// episode numbers, the result has their order.
func (e *editor) chooseEpisodes(ctx context.Context, c *Choice) (out []int, err error) {
	n := len(e.plan.Episodes)
	if c.Label != "" && c.Flags == "" {
		return out, misuse(
			nil,
			"a label without a file of flags",
			"Name the file: "+robocache.Option("flags"),
		)
	}
	if c.Episodes != "" {
		seen := map[int]bool{}
		positions, err := e.numberedInfo().ParseEpisodes(c.Episodes)
		if err != nil {
			return out, err
		}
		for _, i := range positions {
			if !seen[i] {
				out = append(out, i)
			}
			seen[i] = true
		}
	} else {
		for i := range n {
			out = append(out, i)
		}
	}
	keep := func(hold func(i int) (bool, error)) error {
		kept := out[:0]
		for _, i := range out {
			holds, err := hold(i)
			if err != nil {
				return err
			}
			if holds {
				kept = append(kept, i)
			}
		}
		out = kept
		return nil
	}
	var v *planDataset
	if c.Task+c.Where+c.Flags != "" {
		if v, err = e.openPlan(ctx); err != nil {
			return out, err
		}
		defer v.Close()
	}
	if c.Flags != "" {
		flagged := map[int]bool{}
		fileFlags, err := e.flagsWithLabel(ctx, c.Flags, c.Label, v)
		if err != nil {
			return out, err
		}
		for _, f := range fileFlags {
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
				return out, misuse(where, msg, "Cut flagged rows off with "+
					robocache.Command("edit trim --flags=FILE")+", split them off with "+
					robocache.Command("edit split --flags=FILE")+", or choose other flags with "+
					robocache.Option("label"))
			}
			flagged[f.position] = true
		}
		if err := keep(func(i int) (bool, error) { return flagged[i], nil }); err != nil {
			return out, err
		}
	}
	if c.Task != "" {
		if _, err := path.Match(c.Task, ""); err != nil {
			return out, misuse(
				nil,
				"task: "+strconv.Quote(c.Task)+" is no pattern",
				"Use *, ? and […] as wildcards.",
			)
		}
		if err := keep(func(i int) (bool, error) {
			episode, err := v.Episode(ctx, i)
			if err != nil {
				return false, err
			}
			return slices.ContainsFunc(episode.Tasks, func(text string) bool {
				ok, _ := path.Match(
					strings.ReplaceAll(c.Task, "/", "\x01"),
					strings.ReplaceAll(text, "/", "\x01"),
				)
				return ok
			}), nil
		}); err != nil {
			return out, err
		}
	}
	if c.Where != "" {
		x, err := ParseWhere(c.Where)
		if err != nil {
			return out, err
		}
		if err := x.checkColumns(v); err != nil {
			return out, err
		}
		if err := keep(func(i int) (bool, error) {
			return x.predicate(&whereEpisode{ctx, v, i, map[string][]float64{}})
		}); err != nil {
			return out, err
		}
	}
	if c.Invert {
		chosen := map[int]bool{}
		for _, i := range out {
			chosen[i] = true
		}
		out = out[:0:0]
		for i := range n {
			if !chosen[i] {
				out = append(out, i)
			}
		}
	}
	return out, nil
}
