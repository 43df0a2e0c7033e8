package edit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// deleteEpisodes implements delete and keep. keep also puts the episodes into the order in which
// they are named.
func (e *editor) deleteEpisodes(ctx context.Context, v *Verb) error {
	if !v.isSet() {
		return misuse(
			nil,
			v.Verb+" without a choice of episodes",
			"Choose by episodes, task, flags or where.",
		)
	}
	choice := v.Choice
	choice.Invert = v.Invert != (v.Verb == "delete")
	info := e.numberedInfo()
	left, err := e.chooseEpisodes(ctx, &choice)
	if err != nil {
		return err
	}
	for i := range e.plan.Episodes {
		if !slices.Contains(left, i) {
			e.deleted = append(e.deleted, info.EpisodeIndex(i))
		}
	}
	e.keepPositions(left)
	return nil
}

// keepPositions reduces the plan to the episodes at these positions, in this order.
func (e *editor) keepPositions(positions []int) {
	episodes := make([]Episode, len(positions))
	for k, i := range positions {
		episodes[k] = e.plan.Episodes[i]
	}
	e.plan.Episodes = episodes
}

// renameFeatures gives features of the plan new names, all at once.
func (e *editor) renameFeatures(_ context.Context, v *Verb) error {
	if len(v.Names) == 0 {
		return misuse(nil, "rename without names", "old=new")
	}
	to := map[int]string{}
	for _, old := range slices.Sorted(maps.Keys(v.Names)) {
		if err := checkFeatureName(v.Names[old]); err != nil {
			return err
		}
		key, err := e.plan.keyIndex(old, "rename")
		if err != nil {
			return err
		}
		to[key] = v.Names[old]
	}
	for i, name := range to {
		e.plan.Keys[i].Key = name
	}
	return nil
}

// bookkeepingColumns are reserved for the columns that a writer adds itself.
var bookkeepingColumns = []string{
	"timestamp",
	"frame_index",
	"episode_index",
	"index",
	"task_index",
	"task",
}

// checkFeatureName returns an error if name cannot be the name of a new feature.
func checkFeatureName(name string) error {
	isFileName := strings.Trim(name, ".") != "" && !strings.ContainsAny(name, "/\x00")
	if !isFileName || slices.Contains(bookkeepingColumns, name) {
		return misuse(
			robocache.Where{"stream": name},
			"no name for a feature: "+strconv.Quote(name),
			"without /, and none of the bookkeeping columns",
		)
	}
	return nil
}

// removeFeatures removes features from the plan. At least one must remain.
func (e *editor) removeFeatures(_ context.Context, v *Verb) error {
	if len(v.Features) == 0 {
		return misuse(nil, "remove without features", "")
	}
	for _, name := range v.Features {
		if _, err := e.plan.keyIndex(name, "remove"); err != nil {
			return err
		}
	}
	e.plan.Keys = slices.DeleteFunc(
		e.plan.Keys,
		func(k Key) bool { return slices.Contains(v.Features, k.Key) },
	)
	if len(e.plan.Keys) == 0 {
		return misuse(nil, "no feature is left", "")
	}
	return nil
}

// setTask sets one task for all rows of the chosen episodes.
func (e *editor) setTask(ctx context.Context, v *Verb) error {
	if v.Text == "" {
		return misuse(nil, "set-task without a text", "")
	}
	chosen, err := e.chooseEpisodes(ctx, &v.Choice)
	if err != nil {
		return err
	}
	for _, i := range chosen {
		p := &e.plan.Episodes[i]
		p.Rows = append(slices.Clone(p.Rows), Relabel{From: p.From, To: p.To, Text: v.Text})
	}
	return nil
}

// relabelTasks replaces task texts, or sets the task of some rows.
func (e *editor) relabelTasks(ctx context.Context, v *Verb) error {
	isByName := len(v.Names) > 0 && v.Rows == "" && v.Text == ""
	isByRow := v.Rows != "" && v.Text != "" && len(v.Names) == 0
	if !isByName && !isByRow {
		return misuse(
			nil,
			"relabel needs old=new, or rows with a text",
			"old=new, or "+robocache.Option("rows")+" with a text",
		)
	}
	if isByRow {
		return e.relabelRows(v)
	}
	used := map[string]bool{}
	view, err := e.openPlan(ctx)
	if err != nil {
		return err
	}
	defer view.Close()
	chosen, err := e.chooseEpisodes(ctx, &v.Choice)
	if err != nil {
		return err
	}
	for _, i := range chosen {
		source, err := view.Episode(ctx, i)
		if err != nil {
			return err
		}
		for _, text := range source.Tasks {
			used[text] = true
		}
	}
	for old := range v.Names {
		if !used[old] {
			return misuse(
				nil,
				"no episode has the task "+strconv.Quote(old),
				robocache.Nearest(old, slices.Sorted(maps.Keys(used))),
			)
		}
	}
	for _, i := range chosen {
		texts, err := e.sourceTexts(ctx, &e.plan.Episodes[i])
		if err != nil {
			return err
		}
		e.plan.Episodes[i].relabelTexts(v.Names, texts)
	}
	return nil
}

// relabelRows sets the task of some rows of an episode.
func (e *editor) relabelRows(v *Verb) error {
	episodeText, span, _ := strings.Cut(v.Rows, ":")
	fromText, toText, _ := strings.Cut(span, "-")
	var numbers [3]int
	for k, text := range []string{episodeText, fromText, toText} {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return misuse(
				nil,
				"rows: expected such as 3:40-80, found "+strconv.Quote(v.Rows),
				"",
			)
		}
		numbers[k] = n
	}
	episode, from, to := numbers[0], numbers[1], numbers[2]
	position, err := e.numberedInfo().EpisodePosition(int64(episode))
	if err != nil {
		return err
	}
	p := &e.plan.Episodes[position]
	n := p.To - p.From
	if from >= to || to > n {
		return misuse(
			robocache.Where{"episode": episode},
			fmt.Sprintf("rows %d to %d of %d", from, to, n),
			"from-to, to not included",
		)
	}
	p.Rows = append(
		slices.Clone(p.Rows),
		Relabel{From: p.From + from, To: p.From + to, Text: v.Text},
	)
	return nil
}

// sourceTexts returns all task texts that the rows of an episode may have in its source.
func (e *editor) sourceTexts(ctx context.Context, p *Episode) ([]string, error) {
	episode, err := e.srcs[p.Source].Episode(ctx, p.Episode)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(episode.Tasks)
	for _, t := range e.srcs[p.Source].Info().Tasks {
		out = append(out, t.Text)
	}
	return out, nil
}

// reencodeVideo implements reencode and resize. Both encode all video again.
func (e *editor) reencodeVideo(_ context.Context, v *Verb) error {
	if v.Video == nil || v.Verb == "resize" && (v.Video.Width <= 0 || v.Video.Height <= 0) {
		return misuse(
			nil,
			v.Verb+" needs an encoding or a size",
			"reencode: a codec, a GOP or a crf; resize: a size such as 224x224",
		)
	}
	if e.plan.Video == nil {
		e.plan.Video = &Video{}
	}
	encoded, err := json.Marshal(v.Video)
	if err != nil {
		return err
	}
	// The fields that are set replace those of an earlier reencode or resize.
	if err := json.Unmarshal(encoded, e.plan.Video); err != nil {
		return err
	}
	e.plan.Video.All = true
	return nil
}
