package write

import (
	"context"
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

// createTable creates a Parquet file. The caller must call commit or out.Abort.
func (w *Writer) createTable(
	ctx context.Context,
	name string,
	schema *parquet.Schema,
	meta map[string]string,
) (_ *outTable, err error) {
	defer robocache.LocateIn(&err, "file", name)
	w.recordFile(name)
	out, err := w.dst.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	f, err := pqw.NewFile(out, schema, meta, writerIdentity)
	if err != nil {
		out.Abort()
		return nil, err
	}
	return &outTable{f, name, out}, nil
}

// footerBytes is the approximate size of a column chunk's entries in the footer and the page index.
const footerBytes = 220

// groupBytes returns the approximate size of a row group in a file.
func groupBytes(chunks []*pqw.Chunk) (n int64) {
	for _, c := range chunks {
		n += c.Size() + footerBytes
	}
	return n
}

// appendGroup appends a row group.
func (t *outTable) appendGroup(rows int64, chunks []*pqw.Chunk) (err error) {
	defer robocache.LocateIn(&err, "file", t.name)
	return t.Append(rows, chunks)
}

// commit completes the file and makes it visible.
func (t *outTable) commit() (err error) {
	defer robocache.LocateIn(&err, "file", t.name)
	defer t.out.Abort()
	if err := t.Close(); err != nil {
		return err
	}
	return t.out.Commit()
}

// tableSeries writes the numbered files of one schema.
type tableSeries struct {
	writer      *Writer
	dir         string
	schema      *parquet.Schema
	meta        map[string]string
	leaves      []*pqw.Leaf
	table       *outTable // the current file
	chunk, file int
	bytes, rows int64 // size of table, including its footer
}

// newSeries returns a series of files below dir. No file is created yet.
func (w *Writer) newSeries(dir string, columns []outColumn) (*tableSeries, error) {
	s := &tableSeries{writer: w, dir: dir}
	s.chunk, s.file = w.cfg.Shard.firstChunk(w.cfg.ChunksSize)
	s.schema, s.meta = schemaOf(columns, "", "")
	var err error
	if s.leaves, err = pqw.Leaves(s.schema); err != nil {
		return nil, err
	}
	return s, nil
}

// startGroup ends the current file if a row group of about size bytes would overfill it, and begins
// the next.
func (s *tableSeries) startGroup(ctx context.Context, size int64) error {
	if s.table != nil {
		isFull := s.bytes+size >= s.writer.cfg.DataFileBytes || s.table.Groups() >= maxGroups
		if !isFull && !s.writer.cfg.perEpisode() {
			return nil
		}
		if err := s.endFile(); err != nil {
			return err
		}
		var err error
		s.chunk, s.file, err = nextFile(
			s.chunk,
			s.file,
			s.writer.cfg.ChunksSize,
			path.Base(s.dir),
			s.writer.cfg.Shard,
		)
		if err != nil {
			return err
		}
	}
	s.bytes, s.rows = 0, 0
	name := s.writer.cfg.fileName(s.dir+"/chunk-%03d/%s.parquet", s.chunk, s.file)
	var err error
	s.table, err = s.writer.createTable(ctx, name, s.schema, s.meta)
	return err
}

// writeGroup writes a row group with one chunk per column.
func (s *tableSeries) writeGroup(rows int, chunks []*pqw.Chunk) error {
	s.bytes += groupBytes(chunks)
	s.rows += int64(rows)
	return s.table.appendGroup(int64(rows), chunks)
}

// endFile completes the current file, if there is one.
func (s *tableSeries) endFile() error {
	if t := s.table; t != nil {
		s.table = nil
		if err := t.commit(); err != nil {
			return err
		}
	}
	return nil
}

// lastFile returns the numbers of the last file.
func (s *tableSeries) lastFile() (chunk, file int) { return s.chunk, s.file }

// abortFile removes the current file, if there is one.
func (s *tableSeries) abortFile() {
	if s.table != nil {
		s.table.out.Abort()
	}
}

// writtenEpisode is a row of meta/episodes. It is written when the mp4s of all its cameras are
// finished.
type writtenEpisode struct {
	index, length int
	tasks         []string
	chunk, file   int
	from          int64
	videos        map[string]*videoPlace
	stats         robocache.Stats
}

// videoPlace is where an episode's frames of one camera are. It is set when their file is finished.
type videoPlace struct {
	chunk, file int
	from, to    float64 // seconds in the file
	isSet       bool    // from and to are known
}

// isComplete reports whether the place of every video is known.
func (r *writtenEpisode) isComplete() bool {
	return !slices.ContainsFunc(
		slices.Collect(maps.Values(r.videos)),
		func(v *videoPlace) bool { return !v.isSet },
	)
}

// rowsPerGroup bounds the rows in memory. Each takes 5 KB, nearly all of it statistics.
const rowsPerGroup = 500

// episodeField is a column of meta/episodes and the function that fills it.
type episodeField struct {
	column outColumn
	put    func(v *pqw.Values, r *writtenEpisode)
}

// episodeTable is the table of the episodes: meta/episodes, or the lines of v2.1.
type episodeTable interface {
	// writeRows appends episodes.
	writeRows(ctx context.Context, rows []*writtenEpisode) error
	// endFile completes the last file.
	endFile() error
	// abortFile removes the file under way.
	abortFile()
	// lastFile returns the numbers of the last file.
	lastFile() (chunk, file int)
}

// episodesWriter writes meta/episodes. The columns are known before the first episode. Every
// feature that can have statistics has columns for them, which are null for episodes without
// statistics.
type episodesWriter struct {
	*tableSeries
	fields []episodeField
	values []*pqw.Values
}

// newEpisodesWriter determines the columns of meta/episodes.
func newEpisodesWriter(w *Writer) (*episodesWriter, error) {
	writer := &episodesWriter{}
	add := func(c outColumn, put func(v *pqw.Values, r *writtenEpisode)) {
		c.hf = nil // the table has no Hugging Face metadata
		writer.fields = append(writer.fields, episodeField{c, put})
	}
	addInteger := func(name string, value func(r *writtenEpisode) int64) {
		add(
			scalarColumn(name, robocache.Int64, true),
			// Definition level 1 means that the value is not null.
			func(v *pqw.Values, r *writtenEpisode) { v.Int64(value(r), 0, 1) },
		)
	}
	addNumber := func(name string, value func(r *writtenEpisode) float64) {
		add(
			scalarColumn(name, robocache.Float64, false),
			func(v *pqw.Values, r *writtenEpisode) { v.Float64(value(r), 0, 1) },
		)
	}
	addInteger("episode_index", func(r *writtenEpisode) int64 { return int64(r.index) })
	add(listColumn("tasks", robocache.String, 1, 0), func(v *pqw.Values, r *writtenEpisode) {
		v.Nested([]int{len(r.tasks)}, func(i, rep, def int) { v.Text(r.tasks[i], rep, def) })
	})
	addInteger("length", func(r *writtenEpisode) int64 { return int64(r.length) })
	addInteger("data/chunk_index", func(r *writtenEpisode) int64 { return int64(r.chunk) })
	addInteger("data/file_index", func(r *writtenEpisode) int64 { return int64(r.file) })
	addInteger("dataset_from_index", func(r *writtenEpisode) int64 { return r.from })
	addInteger(
		"dataset_to_index",
		func(r *writtenEpisode) int64 { return r.from + int64(r.length) },
	)
	for _, k := range w.cameraKeys {
		addInteger(
			"videos/"+k+"/chunk_index",
			func(r *writtenEpisode) int64 { return int64(r.videos[k].chunk) },
		)
		addInteger(
			"videos/"+k+"/file_index",
			func(r *writtenEpisode) int64 { return int64(r.videos[k].file) },
		)
		addNumber(
			"videos/"+k+"/from_timestamp",
			func(r *writtenEpisode) float64 { return r.videos[k].from },
		)
		addNumber(
			"videos/"+k+"/to_timestamp",
			func(r *writtenEpisode) float64 { return r.videos[k].to },
		)
	}
	for _, f := range w.features {
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
	addInteger(
		"meta/episodes/chunk_index",
		func(*writtenEpisode) int64 { return int64(writer.chunk) },
	)
	addInteger(
		"meta/episodes/file_index",
		func(*writtenEpisode) int64 { return int64(writer.file) },
	)
	columns := make([]outColumn, len(writer.fields))
	for i, f := range writer.fields {
		columns[i] = f.column
	}
	var err error
	if writer.tableSeries, err = w.newSeries("meta/episodes", columns); err != nil {
		return nil, err
	}
	writer.values = valuesOf(writer.leaves)
	return writer, nil
}

// putStatistic adds one statistic of a feature to a column, or null if there is none.
func putStatistic(v *pqw.Values, fs *robocache.FeatureStats, name string) {
	switch {
	case fs == nil:
		v.Null(0, 0)
	case name == "count":
		v.Int64(fs.Count, 0, 3) // a list of one value; definition level 3: it is not null
	default:
		numbers := stats.Vector(fs, name)
		v.Nested(fs.Shape, func(i, rep, def int) { v.Float64(numbers[i], rep, def) })
	}
}

// flushEpisodes writes complete episodes from the head of pending, in row groups. If last is true,
// it writes all of them.
func (w *Writer) flushEpisodes(ctx context.Context, last bool) error {
	for {
		for w.completeCount < len(w.pending) && w.pending[w.completeCount].isComplete() {
			w.completeCount++
		}
		n := min(w.completeCount, rowsPerGroup)
		if n == 0 || n < rowsPerGroup && !last {
			break
		}
		if err := w.index.writeRows(ctx, w.pending[:n]); err != nil {
			return err
		}
		w.pending = w.pending[n:]
		w.completeCount -= n
	}
	if last {
		if err := w.index.endFile(); err != nil {
			return err
		}
	}
	return nil
}

// writeRows writes a row group of episodes.
func (e *episodesWriter) writeRows(ctx context.Context, rows []*writtenEpisode) error {
	var size int64 // estimated from the rows before
	if e.rows > 0 {
		size = e.bytes * int64(len(rows)) / e.rows
	}
	if err := e.startGroup(ctx, size); err != nil {
		return err
	}
	for i, f := range e.fields {
		for _, r := range rows {
			f.put(e.values[i], r)
		}
	}
	chunks, err := chunksOf(e.values)
	if err != nil {
		return err
	}
	return e.writeGroup(len(rows), chunks)
}
