package write

import (
	"context"
	"fmt"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pqw"
	"github.com/goatnote-inc/robocache/stats"
)

// writtenEpisode is what meta/episodes says of one episode. It waits until the mp4 of each of its cameras is finished.
type writtenEpisode struct {
	index, length int
	tasks         []string
	chunk, file   int
	from          int64
	videos        map[string]*videoPlace
	stats         robocache.Stats
}

type videoPlace struct {
	chunk, file int
	from, to    float64
	done        bool
}

func (r *writtenEpisode) complete() bool {
	for _, v := range r.videos {
		if !v.done {
			return false
		}
	}
	return true
}

// rowsPerGroup bounds the rows held: 5 KB each, nearly all statistics.
const rowsPerGroup = 500

// episodesWriter writes meta/episodes. The columns are known before the first episode: every feature that can have statistics has theirs,
// null where an episode brings none.
type episodesWriter struct {
	w      *Writer
	schema *parquet.Schema
	meta   map[string]string
	leaves []*pqw.Values
	t      *outTable
	chunk  int
	file   int
	perRow float64 // bytes, as written so far
}

func newEpisodesWriter(w *Writer) (*episodesWriter, error) {
	e := &episodesWriter{w: w}
	var cols []outColumn
	i64 := func(name string) { cols = append(cols, scalarColumn(name, robocache.Int64, true)) }
	i64("episode_index")
	cols = append(cols, listColumn("tasks", robocache.String, 1, 0))
	i64("length")
	i64("data/chunk_index")
	i64("data/file_index")
	i64("dataset_from_index")
	i64("dataset_to_index")
	for _, k := range w.keys {
		i64("videos/" + k + "/chunk_index")
		i64("videos/" + k + "/file_index")
		cols = append(cols, scalarColumn("videos/"+k+"/from_timestamp", robocache.Float64, false), scalarColumn("videos/"+k+"/to_timestamp", robocache.Float64, false))
	}
	for _, f := range w.feats {
		depth := 1
		switch f.Kind {
		case robocache.KindText, robocache.KindEvent:
			continue
		case robocache.KindImage, robocache.KindVideo:
			depth = 3
		}
		for _, s := range stats.Names {
			name := "stats/" + f.Key + "/" + s
			if s == "count" {
				cols = append(cols, listColumn(name, robocache.Int64, 1, 0))
			} else {
				cols = append(cols, listColumn(name, robocache.Float64, depth, 0))
			}
		}
	}
	i64("meta/episodes/chunk_index")
	i64("meta/episodes/file_index")
	for i := range cols {
		cols[i].hf = nil
	}
	var err error
	if e.schema, e.meta, err = schemaOf(cols, "", ""); err != nil {
		return nil, err
	}
	columns, err := pqw.Leaves(e.schema)
	e.leaves = valuesOf(columns)
	return e, err
}

// flush writes the episodes at the head that are complete, in groups; all of them when last.
func (w *Writer) flush(ctx context.Context, last bool) error {
	for {
		for w.whole < len(w.pending) && w.pending[w.whole].complete() {
			w.whole++
		}
		n := min(w.whole, rowsPerGroup)
		if n == 0 || n < rowsPerGroup && !last {
			break
		}
		if err := w.index.write(ctx, w.pending[:n]); err != nil {
			return err
		}
		w.pending, w.whole = w.pending[n:], w.whole-n
	}
	if last {
		return w.index.end()
	}
	return nil
}

func (e *episodesWriter) write(ctx context.Context, rows []*writtenEpisode) error {
	if e.t != nil {
		size := float64(e.t.size())
		if size+e.perRow*float64(len(rows)) >= float64(e.w.cfg.DataFileBytes) {
			if err := e.end(); err != nil {
				return err
			}
			var err error
			if e.chunk, e.file, err = nextFile(e.chunk, e.file, e.w.cfg.ChunksSize, "episodes"); err != nil {
				return err
			}
		}
	}
	if e.t == nil {
		var err error
		if e.t, err = e.w.createTable(ctx, fmt.Sprintf("meta/episodes/chunk-%03d/file-%03d.parquet", e.chunk, e.file), e.schema, e.meta); err != nil {
			return err
		}
	}
	for _, r := range rows {
		e.put(r)
	}
	chunks, err := chunksOf(e.leaves)
	if err != nil {
		return err
	}
	if err := e.t.group(int64(len(rows)), chunks); err != nil {
		return err
	}
	e.perRow = float64(e.t.size()) / float64(e.t.rows)
	return nil
}

// put adds one row to the leaves, in the order of newEpisodesWriter.
func (e *episodesWriter) put(r *writtenEpisode) {
	n := 0
	next := func() *pqw.Values { n++; return e.leaves[n-1] }
	i64 := func(v int64) { next().Int64(v, 0, 1) }
	i64(int64(r.index))
	tasks := next()
	tasks.Nested([]int{len(r.tasks)}, func(i, rep, def int) { tasks.Text(r.tasks[i], rep, def) })
	i64(int64(r.length))
	i64(int64(r.chunk))
	i64(int64(r.file))
	i64(r.from)
	i64(r.from + int64(r.length))
	for _, k := range e.w.keys {
		v := r.videos[k]
		i64(int64(v.chunk))
		i64(int64(v.file))
		next().Float64(v.from, 0, 1)
		next().Float64(v.to, 0, 1)
	}
	for _, f := range e.w.feats {
		if f.Kind == robocache.KindText || f.Kind == robocache.KindEvent {
			continue
		}
		fs := r.stats[f.Key]
		for _, s := range stats.Names {
			l := next()
			switch {
			case fs == nil:
				l.Null(0, 0)
			case s == "count":
				l.Int64(fs.Count, 0, 3)
			default:
				v := stats.Vector(fs, s)
				l.Nested(fs.Shape, func(i, rep, def int) { l.Float64(v[i], rep, def) })
			}
		}
	}
	i64(int64(e.chunk))
	i64(int64(e.file))
}

func (e *episodesWriter) end() error {
	if e.t == nil {
		return nil
	}
	t := e.t
	e.t = nil
	return t.close()
}

func (e *episodesWriter) abort() { e.t.abort() }
