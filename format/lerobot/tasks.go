package lerobot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/store"
)

const (
	tasksJSONL   = "meta/tasks.jsonl"
	tasksParquet = "meta/tasks.parquet"
)

// readTasks reads the table of task texts. A missing table is a finding, not an error, because the
// task numbers are still known.
func (d *Dataset) readTasks(ctx context.Context) (err error) {
	name := tasksParquet
	read := d.readTasksParquet
	if d.raw.major == 2 {
		name = tasksJSONL
		read = func(ctx context.Context) ([]robocache.Task, error) {
			content, err := store.ReadFile(ctx, d.Bytes, tasksJSONL, maxJSON)
			if err != nil {
				return nil, err
			}
			return parseTasksJSONL(content)
		}
	}
	defer robocache.LocateIn(&err, "file", name)
	tasks, err := read(ctx)
	switch {
	case err == nil:
	case !errors.Is(err, robocache.ErrNotFound):
		return err
	case d.episodes.count() > 0: // a dataset without episodes has no tasks yet
		d.addFinding(robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "missing-file",
			Where:    robocache.Where{"file": name},
			Message:  "the table of tasks is missing: task texts are unknown",
			Hint:     "fetch the file, or write it",
		})
	}
	if err != nil {
		tasks = nil
	}
	d.taskText = make(map[int64]string, len(tasks))
	for i, t := range tasks {
		if old, ok := d.taskText[t.Index]; ok && old != t.Text {
			return robocache.Malformed(
				"lerobot",
				robocache.Where{"row": i},
				"task_index %d has two texts",
				t.Index,
			).WithHint("give each task a unique number, in this file and in the column task_index")
		}
		d.taskText[t.Index] = t.Text
	}
	if !sort.SliceIsSorted(tasks, func(i, j int) bool { return tasks[i].Index < tasks[j].Index }) {
		d.addFinding(warningAt(
			"tasks-unsorted",
			name,
			"tasks are not in the order of task_index: readers that look up by row give "+
				"the wrong text",
			"sort the rows",
		))
		sort.SliceStable(tasks, func(i, j int) bool { return tasks[i].Index < tasks[j].Index })
	}
	d.About.Tasks = tasks
	return nil
}

// parseTasksJSONL parses meta/tasks.jsonl.
func parseTasksJSONL(b []byte) ([]robocache.Task, error) {
	var out []robocache.Task
	err := eachLine(tasksJSONL, b, func(_ int, b []byte) error {
		var l struct {
			Index *int64  `json:"task_index"`
			Task  *string `json:"task"`
		}
		if err := unmarshalLine(b, &l); err != nil {
			return err
		}
		if l.Index == nil || l.Task == nil {
			return fmt.Errorf("task_index or task is missing")
		}
		out = append(out, robocache.Task{Index: *l.Index, Text: *l.Task})
		return nil
	})
	return out, err
}

// readTasksParquet reads a pandas data frame whose index is the text.
func (d *Dataset) readTasksParquet(ctx context.Context) (out []robocache.Task, err error) {
	var number, label *pq.Node
	if _, err := d.eachGroup(ctx, tasksParquet, nil, func(f *pq.File) ([]*pq.Node, error) {
		number = f.Column("task_index")
		label = taskColumn(f)
		if number == nil || number.Group() || label == nil {
			return nil, robocache.Malformed("lerobot", nil, "").
				Expected("columns task_index and a text", fmt.Sprint(columnNames(f)))
		}
		if f.Meta["pandas"] == "" {
			d.addFinding(warningAt(
				"tasks-index",
				tasksParquet,
				"no pandas metadata names the index: other readers take the task for a number",
				"write it with pandas, the text as index",
			))
		}
		return []*pq.Node{number, label}, nil
	}, func(r robocache.Ranged, f *pq.File, g int) error {
		limits := pq.Limits{Bytes: maxJSON}
		numbers, err := pq.ReadColumn(ctx, r, f, g, number, nil, limits)
		if err != nil {
			return err
		}
		ids, err := pq.Int64s(numbers)
		if err != nil {
			return err
		}
		labels, err := pq.ReadColumn(ctx, r, f, g, label, nil, limits)
		if err != nil {
			return err
		}
		if numbers.Def != nil || labels.Def != nil {
			return robocache.Malformed("lerobot", robocache.Where{"row_group": g}, "").
				Expected("a task in every row", "null")
		}
		for i, id := range ids {
			out = append(out, robocache.Task{Index: id, Text: string(labels.Item(i))})
		}
		return nil
	}); err != nil {
		return out, err
	}
	return out, nil
}

// taskColumn returns the column that pandas names as the index, or else the only column of texts.
// If there are several columns of texts, it returns the one named "task".
func taskColumn(f *pq.File) *pq.Node {
	var pandas struct {
		Index []json.RawMessage `json:"index_columns"`
	}
	if json.Unmarshal([]byte(f.Meta["pandas"]), &pandas) == nil && len(pandas.Index) == 1 {
		if n := f.Column(stringOf(pandas.Index[0])); n != nil && n.Type == pq.ByteArray {
			return n
		}
	}
	var only *pq.Node
	for _, n := range f.Root.Children {
		if n.Type == pq.ByteArray && n.MaxRep == 0 {
			if only != nil {
				return f.Column("task")
			}
			only = n
		}
	}
	return only
}

// columnNames returns the names of the columns of a file.
func columnNames(f *pq.File) []string {
	var out []string
	for _, n := range f.Root.Children {
		out = append(out, n.Name)
	}
	return out
}
