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

// delete deletes the chosen episodes; keep keeps them, in the order in which they are named.
func (e *editor) delete(ctx context.Context, v *Verb) error {
	if !v.given() {
		return misuse(
			nil,
			v.Verb+" without a choice of episodes",
			"say which: episodes, task, flags or where",
		)
	}
	choice := v.Choice
	choice.Invert = v.Invert != (v.Verb == "delete")
	info := e.numbered()
	left, err := e.choose(ctx, &choice)
	if err != nil {
		return err
	}
	for i := range e.plan.Episodes {
		if !slices.Contains(left, i) {
			e.deleted = append(e.deleted, info.EpisodeIndex(i))
		}
	}
	e.take(left)
	return nil
}

// take leaves these episodes, in this order.
func (e *editor) take(places []int) {
	episodes := make([]Episode, len(places))
	for k, i := range places {
		episodes[k] = e.plan.Episodes[i]
	}
	e.plan.Episodes = episodes
}

// rename gives features other names.
func (e *editor) rename(_ context.Context, v *Verb) error {
	if len(v.Names) == 0 {
		return misuse(nil, "rename without names", "old=new")
	}
	to := map[int]string{}
	for _, old := range slices.Sorted(maps.Keys(v.Names)) {
		if err := checkName(v.Names[old]); err != nil {
			return err
		}
		key, err := e.plan.key(old, "rename")
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

// checkName refuses what cannot be the name of a feature that an edit makes.
func checkName(name string) error {
	if strings.Trim(name, ".") == "" || strings.ContainsAny(name, "/\x00") ||
		slices.Contains(
			[]string{"timestamp", "frame_index", "episode_index", "index", "task_index", "task"},
			name,
		) {
		return misuse(
			robocache.Where{"stream": name},
			"no name for a feature: "+strconv.Quote(name),
			"without /, and none of the bookkeeping columns",
		)
	}
	return nil
}

// remove leaves features out.
func (e *editor) remove(_ context.Context, v *Verb) error {
	if len(v.Features) == 0 {
		return misuse(nil, "remove without features", "")
	}
	for _, name := range v.Features {
		if _, err := e.plan.key(name, "remove"); err != nil {
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

// setTask gives every row of the chosen episodes one task.
func (e *editor) setTask(ctx context.Context, v *Verb) error {
	if v.Text == "" {
		return misuse(nil, "set-task without a text", "")
	}
	choose, err := e.choose(ctx, &v.Choice)
	if err != nil {
		return err
	}
	for _, i := range choose {
		p := &e.plan.Episodes[i]
		p.Rows = append(slices.Clone(p.Rows), Relabel{From: p.From, To: p.To, Text: v.Text})
	}
	return nil
}

// relabel gives tasks, or rows, other texts.
func (e *editor) relabel(ctx context.Context, v *Verb) error {
	if (v.Rows == "") == (len(v.Names) == 0) || (v.Rows == "") != (v.Text == "") {
		return misuse(
			nil,
			"relabel wants old=new, or rows with a text",
			"old=new, or "+robocache.Option("rows")+" with a text",
		)
	}
	if v.Rows != "" {
		episode, span, _ := strings.Cut(v.Rows, ":")
		a, b, _ := strings.Cut(span, "-")
		var at [3]int
		for k, text := range []string{episode, a, b} {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return misuse(
					nil,
					"rows: expected such as 3:40-80, found "+strconv.Quote(v.Rows),
					"",
				)
			}
			at[k] = n
		}
		episodePosition, err := e.numbered().EpisodePosition(int64(at[0]))
		if err != nil {
			return err
		}
		p := &e.plan.Episodes[episodePosition]
		if n := p.To - p.From; at[1] >= at[2] || at[2] > n {
			return misuse(
				robocache.Where{"episode": at[0]},
				fmt.Sprintf("rows %d to %d of %d", at[1], at[2], n),
				"from-to, to not included",
			)
		}
		p.Rows = append(
			slices.Clone(p.Rows),
			Relabel{From: p.From + at[1], To: p.From + at[2], Text: v.Text},
		)
		return nil
	}
	used := map[string]bool{}
	view, err := e.view(ctx)
	if err != nil {
		return err
	}
	defer view.Close()
	chosen, err := e.choose(ctx, &v.Choice)
	if err != nil {
		return err
	}
	for _, i := range chosen {
		episodeValue, err := view.Episode(ctx, i)
		if err != nil {
			return err
		}
		for _, text := range episodeValue.Tasks {
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
		texts, err := e.texts(ctx, &e.plan.Episodes[i])
		if err != nil {
			return err
		}
		e.plan.Episodes[i].relabel(v.Names, texts)
	}
	return nil
}

// texts are the task texts that an episode's rows may have in its source.
func (e *editor) texts(ctx context.Context, p *Episode) ([]string, error) {
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

// reencode has all video encoded anew; resize in another size.
func (e *editor) reencode(_ context.Context, v *Verb) error {
	if v.Video == nil || v.Verb == "resize" && (v.Video.Width <= 0 || v.Video.Height <= 0) {
		return misuse(
			nil,
			v.Verb+" does not say how",
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
	if err := json.Unmarshal(encoded, e.plan.Video); err != nil {
		return err
	} // what is said takes the place of what was
	e.plan.Video.All = true
	return nil
}
