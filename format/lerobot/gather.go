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

// maxMoves bounds how often a read is repeated because its rows were found elsewhere. A file is
// searched once, so one repetition is normally enough.
const maxMoves = 5

// Gather copies rows of a numeric feature into dst. Consecutive rows are copied at once.
func (d *Dataset) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) (err error) {
	defer crash.Recover("lerobot gather", &err)
	c, err := d.columnOf(key, robocache.KindNumeric)
	if err != nil {
		return err
	}
	size := c.rowBytes
	if err := op.Room(key, "bytes", len(rows)*size, len(dst)); err != nil {
		return err
	}
	d.warm(ctx, c, c.number, rows, c.decodeNumbers)
	w := d.newWalker(
		c,
		func(file int32, row int64) (span, error) {
			return d.tables.loadUnit(ctx, file, row, c.number, c.decodeNumbers)
		},
	)
	for i := 0; i < len(rows); {
		n, err := d.countRun(rows[i:])
		if err != nil {
			return err
		}
		if c.source == computed {
			if err := d.derive(c, rows[i:i+n], dst[i*size:(i+n)*size]); err != nil {
				return err
			}
			i += n
			continue
		}
		rowInUnit, err := w.seek(rows[i])
		if err != nil {
			return err
		}
		n = min(n, int(w.end-w.start)-rowInUnit) // the rest of the run is in the next unit
		copy(dst[i*size:(i+n)*size], w.value.([]byte)[rowInUnit*size:])
		i += n
	}
	return nil
}

// countRun returns how many rows, from the first one on, are consecutive rows of one episode. It
// returns an error if the first row does not exist.
func (d *Dataset) countRun(rows []robocache.Row) (int, error) {
	r := rows[0]
	if err := d.checkRowExists(r); err != nil {
		return 0, err
	}
	length := int(d.episodes.length[r.Episode])
	n := 1
	for _, next := range rows[1:] {
		follows := next.Episode == r.Episode && next.Index == r.Index+n
		if !follows || next.Index >= length {
			break
		}
		n++
	}
	return n, nil
}

// checkRowExists returns an error if the dataset has no row r.
func (d *Dataset) checkRowExists(r robocache.Row) error {
	if err := d.checkEpisode(r.Episode); err != nil {
		return err
	}
	length := int(d.episodes.length[r.Episode])
	if r.Index < 0 || r.Index >= length {
		return op.Row(d.About, length, r)
	}
	return nil
}

// walker reads rows of a column one after the other. Its span is the decoded unit of the last row.
type walker struct {
	span
	d      *Dataset
	column *column
	load   func(file int32, row int64) (span, error)
}

// newWalker returns a walker that has no current unit. load returns the unit that holds a row.
func (d *Dataset) newWalker(c *column, load func(file int32, row int64) (span, error)) *walker {
	return &walker{span: span{file: -1}, d: d, column: c, load: load}
}

// seek returns the position of a row in its unit, the span of rows that load returns. It loads the
// unit if the row is not in the current one. The start of the episode is read again in each attempt, because a concurrent proof
// may move the episode.
func (w *walker) seek(r robocache.Row) (at int, err error) {
	for try := 0; ; try++ {
		if err := w.d.tables.badEpisode(r.Episode); err != nil {
			return at, robocache.At(
				err,
				robocache.Where{"episode": w.d.episodes.indexAt(r.Episode), "stream": w.column.key},
			)
		}
		file, start := w.d.tables.fileOf(r.Episode)
		row := start + int64(r.Index)
		if w.file == file && row >= w.start && row < w.end {
			return int(row - w.start), nil
		}
		loaded, err := w.load(file, row)
		if err == nil {
			w.span = loaded
			continue
		}
		if err != error(errMoved) || try >= maxMoves {
			return at, robocache.At(
				err,
				robocache.Where{"episode": w.d.episodes.indexAt(r.Episode), "stream": w.column.key},
			)
		}
	}
}

// derive computes rows of a bookkeeping column that the files lack.
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
			v = d.episodes.indexAt(r.Episode)
		case "index":
			v = d.episodes.from[r.Episode] + int64(r.Index)
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

// seconds returns the timestamp of a row if none is stored. It is row / fps, as lerobot's recorder
// computes it.
func (d *Dataset) seconds(row int) float64 { return float64(row) / d.raw.fps.Float() }

// Times returns the timestamps of an episode's rows. All streams of a LeRobot episode share them.
func (d *Dataset) Times(ctx context.Context, episode int, key string) (out []int64, err error) {
	defer crash.Recover("lerobot times", &err)
	if err := d.checkEpisode(episode); err != nil {
		return out, err
	}
	if key != "" {
		if _, err := d.columnOf(key); err != nil {
			return out, err
		}
	}
	if err := d.tables.badEpisode(episode); err != nil {
		return out, err
	}
	i, ok := d.byKey["timestamp"]
	if !ok || d.columns[i].source == computed {
		return d.computedTimes(ctx, episode)
	}
	if out, err = d.storedTimes(ctx, episode, d.columns[i]); err != nil {
		return out, err
	}
	for k, t := range out {
		switch {
		case t == badTimestamp:
			return nil, d.timeError(
				ctx,
				episode,
				k,
				key,
				"a time",
				"NaN, infinity or a number beyond int64 nanoseconds",
			)
		case k > 0 && t < out[k-1]:
			return nil, d.timeError(
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

// computedTimes returns the timestamps of an episode if none are stored. It checks that the file
// has the rows.
func (d *Dataset) computedTimes(ctx context.Context, episode int) ([]int64, error) {
	file, _ := d.tables.fileOf(episode)
	f, err := d.tables.footer(ctx, file)
	if err != nil {
		return nil, err
	}
	if err := d.tables.compareEpisodes(ctx, []int32{int32(episode)}); err != nil {
		return nil, err
	}
	n := d.Len(episode)
	// The comparison can move the rows of the episode.
	if _, start := d.tables.fileOf(episode); start+int64(n) > f.pq.Rows {
		return nil, d.tables.lengthError(f.name, episode, f.pq.Rows-start)
	}
	return reader.Grid(d.raw.fps, n), nil
}

// storedTimes reads the timestamps of an episode.
func (d *Dataset) storedTimes(ctx context.Context, episode int, c column) ([]int64, error) {
	n := d.Len(episode)
	// The length is only stated by the metadata, so memory grows as rows are read.
	const firstCapacity = 1 << 16
	out := make([]int64, 0, min(n, firstCapacity))
	w := d.newWalker(
		&c,
		func(file int32, row int64) (span, error) {
			return d.tables.loadUnit(ctx, file, row, unitTimes, c.decodeTimes)
		},
	)
	for len(out) < n {
		rowInUnit, err := w.seek(robocache.Row{Episode: episode, Index: len(out)})
		if err != nil {
			return out, err
		}
		timestamps := w.value.([]int64)[rowInUnit:]
		out = append(out, timestamps[:min(len(timestamps), n-len(out))]...)
	}
	return out, nil
}

// timeError returns the error about the timestamp of a row.
func (d *Dataset) timeError(ctx context.Context, episode, row int, key, want, got string) error {
	return malformed(
		d.withFile(
			ctx,
			episode,
			robocache.Where{
				"episode": d.episodes.indexAt(episode),
				"stream":  cmp.Or(key, "timestamp"),
				"column":  "timestamp",
				"index":   row,
			},
		),
		want,
		got,
	)
}

// withFile adds the data file of an episode to a location.
func (d *Dataset) withFile(ctx context.Context, episode int, w robocache.Where) robocache.Where {
	file, _ := d.tables.fileOf(episode)
	if f, err := d.tables.footer(ctx, file); err == nil {
		w["file"] = f.name
	}
	return w
}

// badTimestamp marks a stored timestamp that has no value in nanoseconds.
const badTimestamp = math.MinInt64

// timestampNanos converts stored seconds to nanoseconds. A value that is row/fps rounded to
// float32, as lerobot's recorder stores it, becomes the exact time row/fps. Otherwise rounding
// could move it past row/fps, and "the last row at or before" would return the row before
// (lerobot.L8).
func timestampNanos(sec float64, rate robocache.Rate) int64 {
	const maxRow = 1 << 40 // Rate.Nanos does not overflow below it
	if f := float32(sec); float64(f) == sec {
		row := math.Round(sec * rate.Float())
		isOnGrid := f == float32(row/rate.Float())
		if isOnGrid && math.Abs(row) < maxRow {
			return rate.Nanos(int64(row))
		}
	}
	ns := math.RoundToEven(sec * 1e9)
	if math.IsNaN(ns) || ns >= 1<<63 || ns <= -1<<63 {
		return badTimestamp
	}
	return int64(ns)
}

// Text returns rows of a text feature, of a language feature as JSON, or of the pseudo-feature
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
	c, err := d.columnOf(key, robocache.KindText, robocache.KindEvent)
	if err != nil {
		return out, err
	}
	if c.source == fromLanguage {
		return d.activeSubtasks(ctx, rows)
	}
	read := c.decodeTexts
	if c.kind == robocache.KindEvent {
		read = c.decodeEvents
	}
	out = make([]string, len(rows))
	w := d.newWalker(
		c,
		func(file int32, row int64) (span, error) {
			return d.tables.loadUnit(ctx, file, row, c.number, read)
		},
	)
	for i, r := range rows {
		if err := d.checkRowExists(r); err != nil {
			return out, err
		}
		rowInUnit, err := w.seek(r)
		if err != nil {
			return out, err
		}
		switch v := w.value.(type) {
		case []string:
			out[i] = v[rowInUnit]
		case *pq.Column:
			out[i] = string(v.Item(rowInUnit))
			if !utf8.ValidString(out[i]) {
				return nil, malformed(
					robocache.Where{
						"episode": d.episodes.indexAt(r.Episode),
						"stream":  key,
						"row":     r.Index,
					},
					"UTF-8",
					fmt.Sprintf("%.20q", out[i]),
				)
			}
		}
	}
	return out, nil
}

// tasksOfRows returns the task text of each row by its task_index. Without that column, the only
// task of the episode is the task of its rows.
func (d *Dataset) tasksOfRows(ctx context.Context, rows []robocache.Row) ([]string, error) {
	k, ok := d.byKey["task_index"]
	if !ok {
		return d.onlyTasks(ctx, rows)
	}
	out := make([]string, len(rows))
	c := &d.columns[k]
	if !c.dtype.Integer() || elementCount(c.shape) != 1 {
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
			return nil, robocache.Malformed(
				"lerobot",
				d.withFile(
					ctx,
					r.Episode,
					robocache.Where{
						"episode": d.episodes.indexAt(r.Episode),
						"row":     r.Index,
						"column":  "task_index",
					},
				),
				"",
			).Expected("a task of the table of tasks", fmt.Sprint(id)).
				WithHint("%s", d.taskHint())
		}
		out[i] = t
	}
	return out, nil
}

// onlyTasks returns the only task of each row's episode. Several tasks in an episode are an error.
func (d *Dataset) onlyTasks(ctx context.Context, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	for i, r := range rows {
		if err := d.checkRowExists(r); err != nil {
			return nil, err
		}
		episode, err := d.Episode(ctx, r.Episode)
		if err != nil {
			return nil, err
		}
		if len(episode.Tasks) != 1 {
			return nil, malformed(
				robocache.Where{
					"episode": d.episodes.indexAt(r.Episode),
					"column":  "task_index",
				},
				"a column task_index, or one task in the episode",
				fmt.Sprintf("%d tasks", len(episode.Tasks)),
			)
		}
		out[i] = episode.Tasks[0]
	}
	return out, nil
}

// taskHint returns a hint about a task number that is not in the table of tasks.
func (d *Dataset) taskHint() string {
	if len(d.About.Tasks) == 0 {
		return "no task is known: check that meta/tasks.parquet (v2: meta/tasks.jsonl) exists"
	}
	var s []string
	for _, t := range d.About.Tasks[:min(len(d.About.Tasks), 10)] {
		s = append(s, fmt.Sprint(t.Index))
	}
	return "known tasks: " + strings.Join(s, ", ")
}
