package lerobot

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// maxMoves bounds how often a caller asks again after proof found rows elsewhere: once a file is
// enough.
const maxMoves = 5

// Gather copies rows of a numeric feature into dst. Neighbouring rows are copied in one piece.
func (d *Dataset) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) (err error) {
	defer crash.Recover("lerobot gather", &err)
	c, err := d.get(key, robocache.KindNumeric)
	if err != nil {
		return err
	}
	size := c.rowBytes
	if err := op.Room(key, "bytes", len(rows)*size, len(dst)); err != nil {
		return err
	}
	d.warm(ctx, c, c.num, rows, c.numbers)
	w := d.walk(
		c,
		func(file int32, row int64) (span, error) { return d.tab.load(ctx, file, row, c.num, c.numbers) },
	)
	for i := 0; i < len(rows); {
		n, err := d.run(rows[i:])
		if err != nil {
			return err
		}
		if c.src == derived {
			if err := d.derive(c, rows[i:i+n], dst[i*size:(i+n)*size]); err != nil {
				return err
			}
			i += n
			continue
		}
		at, err := w.to(rows[i])
		if err != nil {
			return err
		}
		n = min(n, int(w.end-w.start)-at)
		copy(dst[i*size:(i+n)*size], w.value.([]byte)[at*size:])
		i += n
	}
	return nil
}

// run says how many rows from the first on follow each other in one episode, and checks that they
// are there.
func (d *Dataset) run(rows []robocache.Row) (int, error) {
	r := rows[0]
	if err := d.checkEpisode(r.Episode); err != nil {
		return 0, err
	}
	length := int(d.eps.length[r.Episode])
	if r.Index < 0 || r.Index >= length {
		return 0, op.Row(d.About, length, r)
	}
	n := 1
	for n < len(rows) && rows[n].Episode == r.Episode && rows[n].Index == r.Index+n && rows[n].Index < length {
		n++
	}
	return n, nil
}

// walker goes from row to row of a column. Its span is the decoded unit of the last one.
type walker struct {
	span
	d    *Dataset
	c    *column
	load func(file int32, row int64) (span, error)
}

func (d *Dataset) walk(c *column, load func(file int32, row int64) (span, error)) *walker {
	return &walker{span: span{file: -1}, d: d, c: c, load: load}
}

// to goes to a row and says where it stands in its unit, which is loaded where it is not the one of
// the row before. The episode's first row in the file is what it was found with: another
// goroutine's proof may move it.
func (w *walker) to(r robocache.Row) (at int, err error) {
	for try := 0; ; try++ {
		if err := w.d.tab.badEpisode(r.Episode); err != nil {
			return at, robocache.At(
				err,
				robocache.Where{"episode": w.d.eps.id(r.Episode), "stream": w.c.key},
			)
		}
		file, start := w.d.tab.fileOf(r.Episode)
		row := start + int64(r.Index)
		if w.file == file && row >= w.start && row < w.end {
			return int(row - w.start), nil
		}
		if err := func() error {
			loaded, err := w.load(file, row)
			if err != nil {
				return err
			}
			w.span = loaded
			return nil
		}(); err != nil && (err != error(errMoved) || try >= maxMoves) {
			return at, robocache.At(
				err,
				robocache.Where{"episode": w.d.eps.id(r.Episode), "stream": w.c.key},
			)
		}
	}
}

// derive fills rows of a default column that the files do not have.
func (d *Dataset) derive(c *column, rows []robocache.Row, dst []byte) error {
	size := c.rowBytes
	for i, r := range rows {
		var v int64
		switch c.key {
		case "timestamp":
			pq.PutFloat(dst[i*size:], c.dtype, d.seconds(r.Index))
			continue
		case "frame_index":
			v = int64(r.Index)
		case "episode_index":
			v = d.eps.id(r.Episode)
		case "index":
			v = d.eps.from[r.Episode] + int64(r.Index)
		case "task_index":
			if len(d.About.Tasks) != 1 {
				return robocache.Malformed(
					"lerobot",
					robocache.Where{"column": c.key},
					"the column is missing, and there is more than one task",
				)
			}
			v = d.About.Tasks[0].Index
		}
		if c.dtype.Float() {
			pq.PutFloat(dst[i*size:], c.dtype, float64(v))
		} else if !pq.PutInt(dst[i*size:], c.dtype, v, false) {
			return malformed(
				robocache.Where{"column": c.key},
				"a value that fits "+c.dtype.String(),
				fmt.Sprint(v),
			)
		}
	}
	return nil
}

// seconds is the timestamp of a row where none is stored: row / fps, as the recorder computes it.
func (d *Dataset) seconds(row int) float64 { return float64(row) / d.raw.fps.Float() }

// Times gives the timestamps of an episode's rows. Every stream of a LeRobot episode shares them.
func (d *Dataset) Times(ctx context.Context, episode int, key string) (out []int64, err error) {
	defer crash.Recover("lerobot times", &err)
	if err := d.checkEpisode(episode); err != nil {
		return out, err
	}
	if key != "" {
		if _, err := d.get(key); err != nil {
			return out, err
		}
	}
	// The length is the metadata's claim: memory is taken as rows are found, not before.
	n := d.Len(episode)
	i, ok := d.byKey["timestamp"]
	if err := d.tab.badEpisode(episode); err != nil {
		return out, err
	}
	if !ok || d.cols[i].src == derived {
		file, _ := d.tab.fileOf(episode)
		f, err := d.tab.footer(ctx, file)
		if err != nil {
			return out, err
		}
		if err := d.tab.compareEpisodes(ctx, []int32{int32(episode)}); err != nil {
			return out, err
		}
		// The comparison can move the rows of the episode.
		if _, start := d.tab.fileOf(episode); start+int64(n) > f.pq.Rows {
			return nil, d.tab.lengthError(f.name, episode, f.pq.Rows-start)
		}
		return reader.Grid(d.raw.fps, n), nil
	}
	c := d.cols[i]
	out = make([]int64, 0, min(n, 1<<16))
	w := d.walk(
		&c,
		func(file int32, row int64) (span, error) { return d.tab.load(ctx, file, row, unitTimes, c.timestamps) },
	)
	for len(out) < n {
		at, err := w.to(robocache.Row{Episode: episode, Index: len(out)})
		if err != nil {
			return out, err
		}
		timestamps := w.value.([]int64)[at:]
		out = append(out, timestamps[:min(len(timestamps), n-len(out))]...)
	}
	for k, t := range out {
		switch {
		case t == badTimestamp:
			return nil, d.badTime(
				ctx,
				episode,
				k,
				key,
				"a time",
				"NaN, infinity or a number beyond int64 nanoseconds",
			)
		case k > 0 && t < out[k-1]:
			return nil, d.badTime(
				ctx,
				episode,
				k,
				key,
				fmt.Sprintf("at least %d ns, the time of the row before", out[k-1]),
				fmt.Sprintf("%d ns", t),
			)
		}
	}
	return out, nil
}

func (d *Dataset) badTime(ctx context.Context, episode, row int, key, want, got string) error {
	return malformed(
		d.inFile(
			ctx,
			episode,
			robocache.Where{
				"episode": d.eps.id(episode),
				"stream":  cmp.Or(key, "timestamp"),
				"column":  "timestamp",
				"index":   row,
			},
		),
		want,
		got,
	)
}

// inFile adds the data file of an episode to a place.
func (d *Dataset) inFile(ctx context.Context, episode int, w robocache.Where) robocache.Where {
	file, _ := d.tab.fileOf(episode)
	if f, err := d.tab.footer(ctx, file); err == nil {
		w["file"] = f.name
	}
	return w
}

const badTimestamp = math.MinInt64

// timestampNanos turns stored seconds into nanoseconds. What is row/fps rounded to float32, as the
// recorder stores it, is the time row/fps: a timestamp that float32 moved up by a part of a
// nanosecond would give "the last row at or before" the row before (L8).
func timestampNanos(sec float64, rate robocache.Rate) int64 {
	if f := float32(sec); float64(f) == sec {
		if row := math.Round(
			sec * rate.Float(),
		); math.Abs(row) < 1<<40 &&
			f == float32(row/rate.Float()) {
			return rate.Nanos(int64(row))
		}
	}
	ns := math.RoundToEven(sec * 1e9)
	if math.IsNaN(ns) || ns >= 1<<63 || ns <= -1<<63 {
		return badTimestamp
	}
	return int64(ns)
}

// Text gives rows of a text feature, of a language feature as JSON, or of the pseudo-feature
// "task".
func (d *Dataset) Text(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (out []string, err error) {
	defer crash.Recover("lerobot text", &err)
	if _, own := d.byKey[key]; key == "task" && !own {
		return d.tasksOfRows(ctx, rows)
	}
	c, err := d.get(key, robocache.KindText, robocache.KindEvent)
	if err != nil {
		return out, err
	}
	read := c.texts
	if c.kind == robocache.KindEvent {
		read = c.events
	}
	out = make([]string, len(rows))
	w := d.walk(
		c,
		func(file int32, row int64) (span, error) { return d.tab.load(ctx, file, row, c.num, read) },
	)
	for i, r := range rows {
		if _, err := d.run(rows[i : i+1]); err != nil {
			return out, err
		}
		at, err := w.to(r)
		if err != nil {
			return out, err
		}
		switch v := w.value.(type) {
		case []string:
			out[i] = v[at]
		case *pq.Column:
			out[i] = string(v.Item(at))
			if !utf8.ValidString(out[i]) {
				return nil, malformed(
					robocache.Where{"episode": d.eps.id(r.Episode), "stream": key, "row": r.Index},
					"UTF-8",
					fmt.Sprintf("%.20q", out[i]),
				)
			}
		}
	}
	return out, nil
}

// tasksOfRows looks the rows' task_index up. Without that column the episode's only task is the
// task of its rows.
func (d *Dataset) tasksOfRows(ctx context.Context, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	k, ok := d.byKey["task_index"]
	if !ok {
		for i, r := range rows {
			if _, err := d.run(rows[i : i+1]); err != nil {
				return nil, err
			}
			episode, err := d.Episode(ctx, r.Episode)
			if err != nil {
				return nil, err
			}
			tasks := episode.Tasks
			if len(tasks) != 1 {
				return nil, malformed(
					robocache.Where{"episode": d.eps.id(r.Episode), "column": "task_index"},
					"a column task_index, or one task in the episode",
					fmt.Sprintf("%d tasks", len(tasks)),
				)
			}
			out[i] = tasks[0]
		}
		return out, nil
	}
	c := &d.cols[k]
	if !c.dtype.Integer() || elements(c.shape) != 1 {
		return nil, malformed(
			robocache.Where{"column": "task_index"},
			"an integer a row",
			c.dtype.String(),
		)
	}
	buf := make([]byte, len(rows)*c.rowBytes)
	if err := d.Gather(ctx, "task_index", rows, buf); err != nil {
		return nil, err
	}
	ids := robocache.Int64s(make([]int64, 0, len(rows)), c.dtype, buf)
	for i, r := range rows {
		id := ids[i]
		t, ok := d.taskText[id]
		if !ok {
			return nil, robocache.Malformed("lerobot", d.inFile(ctx, r.Episode, robocache.Where{"episode": d.eps.id(r.Episode), "row": r.Index, "column": "task_index"}), "").
				Expected("a task of the table of tasks", fmt.Sprint(id)).
				WithHint("%s", d.someTasks())
		}
		out[i] = t
	}
	return out, nil
}

// someTasks is a hint for a task number that is not in the table.
func (d *Dataset) someTasks() string {
	if len(d.About.Tasks) == 0 {
		return "no task is known: is meta/tasks.parquet (v2: meta/tasks.jsonl) there?"
	}
	var s []string
	for _, t := range d.About.Tasks[:min(len(d.About.Tasks), 10)] {
		s = append(s, fmt.Sprint(t.Index))
	}
	return "tasks known: " + strings.Join(s, ", ")
}
