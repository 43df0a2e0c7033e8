package edit

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// noRow is a row number outside the range of every Relabel.
const noRow = -1

// taskAt returns the new task of a row whose task was old.
func (p *Episode) taskAt(row int, old string) string {
	for i := len(p.Rows) - 1; i >= 0; i-- {
		if r := p.Rows[i]; r.From <= row && row < r.To {
			return r.Text
		}
	}
	if text, ok := p.Texts[old]; ok {
		return text
	}
	return old
}

// relabelTexts replaces task texts simultaneously, so that a=b b=a swaps them. all lists the texts
// that the source's rows may have.
func (p *Episode) relabelTexts(names map[string]string, all []string) {
	texts := map[string]string{}
	maps.Copy(texts, p.Texts)
	for _, original := range all {
		current, ok := p.Texts[original]
		if !ok {
			current = original
		}
		if text, ok := names[current]; ok {
			texts[original] = text
		}
	}
	p.Texts = texts
	p.Rows = slices.Clone(p.Rows)
	for i, r := range p.Rows {
		if text, ok := names[r.Text]; ok {
			p.Rows[i].Text = text
		}
	}
}

// Text returns texts of the sources, to which it applies the plan's changes of tasks and language
// columns.
func (v *planDataset) Text(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (out []string, err error) {
	if c := v.addedColumns[key]; c != nil {
		return c.gatherTexts(v, rows)
	}
	readRun := func(source int, name string, rows []robocache.Row, _ int) error {
		if name == "" {
			out = append(out, make([]string, len(rows))...)
			return nil
		}
		text, err := v.srcs[source].Text(ctx, name, rows)
		if err != nil {
			return err
		}
		out = append(out, text...)
		return nil
	}
	if err := v.eachSourceRun(ctx, key, rows, readRun); err != nil {
		return out, err
	}
	if isLanguageColumn(key) {
		return out, v.applyLanguage(key, rows, out)
	}
	if key == "task" {
		for i, r := range rows {
			p, err := v.planEpisode(r.Episode)
			if err != nil {
				return out, err
			}
			out[i] = p.taskAt(p.From+r.Index, out[i])
		}
	}
	return out, nil
}

// rowTasks returns the task of each row of an episode, or nil if the source has no tasks of rows.
func (v *planDataset) rowTasks(ctx context.Context, e int) ([]string, error) {
	texts, err := v.Text(ctx, "task", robocache.RowsOf(e, 0, v.Len(e)))
	noTasks := []error{robocache.ErrNotFound, robocache.ErrMisuse, robocache.ErrUnsupported}
	if slices.ContainsFunc(noTasks, func(class error) bool { return errors.Is(err, class) }) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return texts, nil
}

// episodeTasks returns the tasks of an episode. listed holds the tasks that the source lists for
// the whole episode.
func (v *planDataset) episodeTasks(
	ctx context.Context,
	e int,
	listed []string,
) (out []string, err error) {
	p, err := v.planEpisode(e)
	if err != nil {
		return out, err
	}
	if len(p.Rows) > 0 || !v.hasAllRows(p) {
		rows, err := v.rowTasks(ctx, e)
		if err != nil {
			return out, err
		}
		if rows != nil {
			listed = rows
		}
	} else {
		mapped := make([]string, len(listed))
		for i, old := range listed {
			mapped[i] = p.taskAt(noRow, old)
		}
		listed = mapped
	}
	seen := map[string]bool{}
	for _, text := range listed {
		if !seen[text] {
			seen[text] = true
			out = append(out, text)
		}
	}
	return out, nil
}

// numberTasks numbers the tasks of the result. Used tasks come first, in the order of the sources'
// numbers, and new tasks follow.
func (v *planDataset) numberTasks(ctx context.Context) error {
	order, err := v.usedTasks(ctx)
	if err != nil {
		return err
	}
	v.taskNumbers = map[string]int64{}
	v.info.Tasks = nil
	number := func(text string) {
		if _, ok := v.taskNumbers[text]; ok {
			return
		}
		index := int64(len(v.taskNumbers))
		v.taskNumbers[text] = index
		v.info.Tasks = append(v.info.Tasks, robocache.Task{Index: index, Text: text})
	}
	isUsed := map[string]bool{}
	for _, text := range order {
		isUsed[text] = true
	}
	for _, ds := range v.srcs {
		for _, t := range ds.Info().Tasks {
			if isUsed[t.Text] {
				number(t.Text)
			}
		}
	}
	for _, text := range order {
		number(text)
	}
	return nil
}

// usedTasks returns the task texts of the episodes and of the columns of task numbers, in the order
// of their first use.
func (v *planDataset) usedTasks(ctx context.Context) (order []string, err error) {
	seen := map[string]bool{}
	use := func(text string) {
		if !seen[text] {
			seen[text] = true
			order = append(order, text)
		}
	}
	for e := range v.plan.Episodes {
		episode, err := v.Episode(ctx, e)
		if err != nil {
			return nil, err
		}
		for _, text := range episode.Tasks {
			use(text)
		}
	}
	for _, f := range v.info.Features {
		if !holdsTaskNumbers(&f) {
			continue
		}
		for e := range v.plan.Episodes {
			if err := v.eachTaskText(ctx, f.Key, e, use); err != nil {
				return nil, err
			}
		}
	}
	return order, nil
}

// eachTaskText calls use with the text of each task number in a column of an episode.
func (v *planDataset) eachTaskText(
	ctx context.Context,
	key string,
	episode int,
	use func(text string),
) error {
	rows := robocache.RowsOf(episode, 0, v.Len(episode))
	raw := make([]byte, 8*len(rows))
	// v.taskNumbers is still nil, so Gather returns the sources' numbers.
	if err := v.Gather(ctx, key, rows, raw); err != nil {
		return err
	}
	for i, r := range rows {
		number := int64(binary.LittleEndian.Uint64(raw[8*i:]))
		text, ok, err := v.taskText(r, number)
		if err != nil {
			return err
		}
		if ok {
			use(text)
		}
	}
	return nil
}

// holdsTaskNumbers reports whether a column holds task numbers, as GR00T's annotations do.
func holdsTaskNumbers(f *robocache.Feature) bool {
	isInteger := f.Kind == robocache.KindNumeric && f.DType == robocache.Int64
	return strings.HasPrefix(f.Key, "annotation.") && isInteger && f.Scalar()
}

// taskText returns the text of a task in the result. number is its task number in the source of row
// r. The bool is false if that source has no such task.
func (v *planDataset) taskText(r robocache.Row, number int64) (string, bool, error) {
	p, err := v.planEpisode(r.Episode)
	if err != nil {
		return "", false, err
	}
	for _, t := range v.srcs[p.Source].Info().Tasks {
		if t.Index == number {
			if text, ok := p.Texts[t.Text]; ok {
				return text, true, nil
			}
			return t.Text, true, nil
		}
	}
	return "", false, nil
}

// renumberTasks replaces the sources' task numbers in dst by those of the result. It does nothing
// before numberTasks is called.
func (v *planDataset) renumberTasks(rows []robocache.Row, dst []byte) error {
	if v.taskNumbers == nil {
		return nil
	}
	for i, r := range rows {
		number := int64(binary.LittleEndian.Uint64(dst[8*i:]))
		text, ok, err := v.taskText(r, number)
		if err != nil {
			return err
		}
		if ok {
			binary.LittleEndian.PutUint64(dst[8*i:], uint64(v.taskNumbers[text]))
		}
	}
	return nil
}
