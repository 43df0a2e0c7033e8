package write

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pqw"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// outTable writes one Parquet file, row group by row group.
type outTable struct {
	*pqw.File
	name string
	out  store.Writer
}

func (w *Writer) createTable(
	ctx context.Context,
	name string,
	schema *parquet.Schema,
	meta map[string]string,
) (_ *outTable, err error) {
	defer robocache.LocateIn(&err, "file", name)
	w.begin(name)
	out, err := w.dst.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	f, err := pqw.NewFile(out, schema, meta, writerIdentity)
	if err != nil {
		out.Abort()
	}
	if err != nil {
		return nil, err
	}
	return &outTable{f, name, out}, nil
}

// footerBytes is about what a column chunk takes in the footer and the page index.
const footerBytes = 220

// sizeOf is about what a row group takes of a file.
func sizeOf(chunks []*pqw.Chunk) (n int64) {
	for _, c := range chunks {
		n += c.Size() + footerBytes
	}
	return n
}

func (t *outTable) append(rows int64, chunks []*pqw.Chunk) (err error) {
	defer robocache.LocateIn(&err, "file", t.name)
	return t.Append(rows, chunks)
}

// close ends the file and makes it appear.
func (t *outTable) close() (err error) {
	defer robocache.LocateIn(&err, "file", t.name)
	defer t.out.Abort()
	if err := t.Close(); err != nil {
		return err
	}
	return t.out.Commit()
}

// tableSeries writes the numbered files of one schema.
type tableSeries struct {
	w           *Writer
	dir         string
	schema      *parquet.Schema
	meta        map[string]string
	leaves      []*pqw.Leaf
	t           *outTable // under way
	chunk, file int
	bytes, rows int64 // of t, with its footer
}

func (w *Writer) newSeries(dir string, columns []outColumn) (*tableSeries, error) {
	s := &tableSeries{w: w, dir: dir}
	s.chunk, s.file = w.cfg.Shard.first(w.cfg.ChunksSize)
	s.schema, s.meta = schemaOf(columns, "", "")
	var err error
	if s.leaves, err = pqw.Leaves(s.schema); err != nil {
		return nil, err
	}
	return s, nil
}

// turn ends the file where a row group of about size bytes would take it over its size, and begins
// the next.
func (s *tableSeries) turn(ctx context.Context, size int64) error {
	if s.t != nil {
		if s.bytes+size < s.w.cfg.DataFileBytes && s.t.Groups() < maxGroups {
			return nil
		}
		if err := s.end(); err != nil {
			return err
		}
		var err error
		s.chunk, s.file, err = nextFile(
			s.chunk,
			s.file,
			s.w.cfg.ChunksSize,
			path.Base(s.dir),
			s.w.cfg.Shard,
		)
		if err != nil {
			return err
		}
	}
	s.bytes, s.rows = 0, 0
	var err error
	if s.t, err = s.w.createTable(
		ctx,
		fmt.Sprintf("%s/chunk-%03d/file-%03d.parquet", s.dir, s.chunk, s.file),
		s.schema,
		s.meta,
	); err != nil {
		return err
	}
	return nil
}

// group writes a row group: a chunk a column.
func (s *tableSeries) group(rows int, chunks []*pqw.Chunk) error {
	s.bytes, s.rows = s.bytes+sizeOf(chunks), s.rows+int64(rows)
	return s.t.append(int64(rows), chunks)
}

func (s *tableSeries) end() error {
	if t := s.t; t != nil {
		s.t = nil
		if err := t.close(); err != nil {
			return err
		}
	}
	return nil
}

func (s *tableSeries) abort() {
	if s.t != nil {
		s.t.out.Abort()
	}
}

// writtenEpisode is what meta/episodes says of one episode. It waits until the mp4 of each of its
// cameras is finished.
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
	return !slices.ContainsFunc(
		slices.Collect(maps.Values(r.videos)),
		func(v *videoPlace) bool { return !v.done },
	)
}

// rowsPerGroup bounds the rows held: 5 KB each, nearly all statistics.
const rowsPerGroup = 500

// episodeField is a column of meta/episodes and how it is filled.
type episodeField struct {
	column outColumn
	put    func(v *pqw.Values, r *writtenEpisode)
}

// episodesWriter writes meta/episodes. The columns are known before the first episode: every
// feature that can have statistics has theirs, null where an episode brings none.
type episodesWriter struct {
	*tableSeries
	fields []episodeField
	values []*pqw.Values
}

func newEpisodesWriter(w *Writer) (*episodesWriter, error) {
	e := &episodesWriter{}
	add := func(c outColumn, put func(v *pqw.Values, r *writtenEpisode)) {
		c.hf = nil
		e.fields = append(e.fields, episodeField{c, put})
	}
	i64 := func(name string, value func(r *writtenEpisode) int64) {
		add(
			scalarColumn(name, robocache.Int64, true),
			func(v *pqw.Values, r *writtenEpisode) { v.Int64(value(r), 0, 1) },
		)
	}
	f64 := func(name string, value func(r *writtenEpisode) float64) {
		add(
			scalarColumn(name, robocache.Float64, false),
			func(v *pqw.Values, r *writtenEpisode) { v.Float64(value(r), 0, 1) },
		)
	}
	i64("episode_index", func(r *writtenEpisode) int64 { return int64(r.index) })
	add(listColumn("tasks", robocache.String, 1, 0), func(v *pqw.Values, r *writtenEpisode) {
		v.Nested([]int{len(r.tasks)}, func(i, rep, def int) { v.Text(r.tasks[i], rep, def) })
	})
	i64("length", func(r *writtenEpisode) int64 { return int64(r.length) })
	i64("data/chunk_index", func(r *writtenEpisode) int64 { return int64(r.chunk) })
	i64("data/file_index", func(r *writtenEpisode) int64 { return int64(r.file) })
	i64("dataset_from_index", func(r *writtenEpisode) int64 { return r.from })
	i64("dataset_to_index", func(r *writtenEpisode) int64 { return r.from + int64(r.length) })
	for _, k := range w.keys {
		i64(
			"videos/"+k+"/chunk_index",
			func(r *writtenEpisode) int64 { return int64(r.videos[k].chunk) },
		)
		i64(
			"videos/"+k+"/file_index",
			func(r *writtenEpisode) int64 { return int64(r.videos[k].file) },
		)
		f64(
			"videos/"+k+"/from_timestamp",
			func(r *writtenEpisode) float64 { return r.videos[k].from },
		)
		f64("videos/"+k+"/to_timestamp", func(r *writtenEpisode) float64 { return r.videos[k].to })
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
			c := listColumn("stats/"+f.Key+"/"+s, robocache.Float64, depth, 0)
			if s == "count" {
				c = listColumn("stats/"+f.Key+"/"+s, robocache.Int64, 1, 0)
			}
			add(c, func(v *pqw.Values, r *writtenEpisode) { putStatistic(v, r.stats[f.Key], s) })
		}
	}
	i64("meta/episodes/chunk_index", func(*writtenEpisode) int64 { return int64(e.chunk) })
	i64("meta/episodes/file_index", func(*writtenEpisode) int64 { return int64(e.file) })
	columns := make([]outColumn, len(e.fields))
	for i, f := range e.fields {
		columns[i] = f.column
	}
	var err error
	if e.tableSeries, err = w.newSeries("meta/episodes", columns); err != nil {
		return nil, err
	}
	e.values = valuesOf(e.leaves)
	return e, nil
}

func putStatistic(v *pqw.Values, fs *robocache.FeatureStats, name string) {
	switch {
	case fs == nil:
		v.Null(0, 0)
	case name == "count":
		v.Int64(fs.Count, 0, 3)
	default:
		numbers := stats.Vector(fs, name)
		v.Nested(fs.Shape, func(i, rep, def int) { v.Float64(numbers[i], rep, def) })
	}
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
		if err := w.index.end(); err != nil {
			return err
		}
	}
	return nil
}

func (e *episodesWriter) write(ctx context.Context, rows []*writtenEpisode) error {
	var size int64 // as the rows before them
	if e.rows > 0 {
		size = e.bytes * int64(len(rows)) / e.rows
	}
	if err := e.turn(ctx, size); err != nil {
		return err
	}
	for i, f := range e.fields {
		for _, r := range rows {
			f.put(e.values[i], r)
		}
	}
	chunksOfValue, err := chunksOf(e.values)
	if err != nil {
		return err
	}
	return e.group(len(rows), chunksOfValue)
}
