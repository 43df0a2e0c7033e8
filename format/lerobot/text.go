package lerobot

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Text gives rows of a text feature, of a language feature as JSON, or of the pseudo-feature "task".
func (d *Dataset) Text(ctx context.Context, key string, rows []robocache.Row) (out []string, err error) {
	defer guard.Malformed("lerobot text", &err)
	if _, own := d.byKey[key]; key == "task" && !own {
		return d.tasksOfRows(ctx, rows), nil
	}
	c := d.get(key, robocache.KindText, robocache.KindEvent)
	read := c.texts
	if c.kind == robocache.KindEvent {
		read = c.events
	}
	out = make([]string, len(rows))
	w := d.walk(c, func(file int32, row int64) span { return d.tab.load(ctx, file, row, c.num, read) })
	for i, r := range rows {
		d.run(rows[i : i+1])
		at := w.to(r)
		switch v := w.value.(type) {
		case []string:
			out[i] = v[at]
		case *pq.Column:
			out[i] = string(v.Item(at))
			if !utf8.ValidString(out[i]) {
				return nil, malformed(robocache.Where{"episode": d.eps.id(r.Episode), "stream": key, "row": r.Index}, "UTF-8", fmt.Sprintf("%.20q", out[i]))
			}
		}
	}
	return out, nil
}

// tasksOfRows looks the rows' task_index up. Without that column the episode's only task is the task of its rows.
func (d *Dataset) tasksOfRows(ctx context.Context, rows []robocache.Row) []string {
	out := make([]string, len(rows))
	k, ok := d.byKey["task_index"]
	if !ok {
		for i, r := range rows {
			d.run(rows[i : i+1])
			tasks := guard.Must(d.Episode(ctx, r.Episode)).Tasks
			if len(tasks) != 1 {
				guard.Fail(malformed(robocache.Where{"episode": d.eps.id(r.Episode), "column": "task_index"}, "a column task_index, or one task in the episode", fmt.Sprintf("%d tasks", len(tasks))))
			}
			out[i] = tasks[0]
		}
		return out
	}
	c := &d.cols[k]
	if !c.dtype.Integer() || elements(c.shape) != 1 {
		guard.Fail(malformed(robocache.Where{"column": "task_index"}, "an integer a row", c.dtype.String()))
	}
	buf := make([]byte, len(rows)*c.rowBytes)
	guard.Check(d.Gather(ctx, "task_index", rows, buf))
	ids := robocache.Int64s(make([]int64, 0, len(rows)), c.dtype, buf)
	for i, r := range rows {
		id := ids[i]
		t, ok := d.taskText[id]
		if !ok {
			guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: d.inFile(ctx, r.Episode, robocache.Where{"episode": d.eps.id(r.Episode), "row": r.Index, "column": "task_index"}), Want: "a task of the table of tasks", Got: fmt.Sprint(id), Hint: d.someTasks()})
		}
		out[i] = t
	}
	return out
}

// someTasks is a hint for a task number that is not in the table.
func (d *Dataset) someTasks() string {
	if len(d.info.Tasks) == 0 {
		return "no task is known: is meta/tasks.parquet (v2: meta/tasks.jsonl) there?"
	}
	var s []string
	for _, t := range d.info.Tasks[:min(len(d.info.Tasks), 10)] {
		s = append(s, fmt.Sprint(t.Index))
	}
	return "tasks known: " + strings.Join(s, ", ")
}
