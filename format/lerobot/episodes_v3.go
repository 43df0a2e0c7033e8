package lerobot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/reader"
)

// episodesTemplate is the template of the names of the episodes files.
const episodesTemplate = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"

// episodeColumn is one projected column of all episodes files. The type can differ between files: 0
// may be an integer in one, and pandas writes integers as float64 if there was a null. No number is
// beyond 2^53.
type episodeColumn struct {
	values []float64
	exists bool // some file has it
}

// openColumns returns the columns of the episodes table that Open reads.
func (d *Dataset) openColumns() map[string]*episodeColumn {
	columns := map[string]*episodeColumn{}
	for _, name := range []string{
		"episode_index",
		"length",
		"data/chunk_index",
		"data/file_index",
		"dataset_from_index",
		"dataset_to_index",
		"chunk_index",
		"file_index",
	} {
		columns[name] = &episodeColumn{}
	}
	for i := range d.raw.features {
		if f := &d.raw.features[i]; f.DType == "video" {
			for _, suffix := range []string{
				"chunk_index",
				"file_index",
				"from_timestamp",
				"to_timestamp",
			} {
				columns["videos/"+f.key+"/"+suffix] = &episodeColumn{}
			}
		}
	}
	return columns
}

// readEpisodesV3 reads the projected columns of every episodes file.
func (d *Dataset) readEpisodesV3(ctx context.Context) error {
	names, err := d.paths.numberedFiles(ctx, "meta/episodes", episodesTemplate, ".parquet")
	if err != nil {
		return err
	}
	// A dataset without recorded episodes has no file.
	if len(names) == 0 && d.raw.totalEpisodes != 0 {
		return robocache.NotFound(
			"lerobot",
			robocache.Where{"file": "meta/episodes"},
			"the dataset has no episodes file",
		).WithHint("a v3 dataset has meta/episodes/chunk-000/file-000.parquet")
	}
	if d.isGrowing {
		if names, err = d.finishedFiles(ctx, names); err != nil {
			return err
		}
	}
	d.paths.episodes = names
	r := episodesReader{want: d.openColumns()}
	isWanted := func(column string) bool { return r.want[column] != nil }
	total, err := d.eachEpisodesGroup(ctx, isWanted, r.beginFile,
		func(in robocache.Ranged, f *pq.File, g int) error {
			return r.readGroup(ctx, in, f, g)
		})
	if err != nil {
		return err
	}
	if total == 0 && d.raw.totalEpisodes > 0 {
		return d.noEpisodes("meta/episodes")
	}
	e, perm, err := assembleEpisodes(r.want, total, d.raw, d.repair)
	if err := inEpisodesFile(err, names, r.starts); err != nil {
		return err
	}
	if !r.want["data/file_index"].exists && total > 0 {
		d.addFinding(warningAt(
			"episodes-columns",
			"meta/episodes",
			"data/chunk_index and data/file_index are missing: taken from other columns",
			"write the episodes table again",
		))
	}
	d.useTable(
		e,
		perm,
		"meta/episodes",
		"episodes are not in the order of episode_index: readers that look up by row show "+
			"wrong frames",
		"sort the rows",
	)
	return nil
}

// parquetMagic ends a Parquet file.
const parquetMagic = "PAR1"

// finishedFiles leaves out the last episodes files as long as they have no footer: lerobot writes it
// when a session of recording is finalized.
func (d *Dataset) finishedFiles(ctx context.Context, names []string) ([]string, error) {
	for len(names) > 0 {
		last := names[len(names)-1]
		isFinished, err := d.hasFooter(ctx, last)
		if err != nil || isFinished {
			return names, err
		}
		d.addFinding(warningAt("unfinished-file", last,
			"the file has no footer: its episodes are not finalized, and left out",
			"finalize the recording"))
		names = names[:len(names)-1]
	}
	return names, nil
}

// hasFooter reports whether a Parquet file is complete.
func (d *Dataset) hasFooter(ctx context.Context, name string) (bool, error) {
	r, err := d.Bytes.Open(ctx, name)
	if err != nil {
		return false, robocache.At(err, robocache.Where{"file": name})
	}
	defer r.Close()
	tail := make([]byte, len(parquetMagic))
	if r.Size() < 2*int64(len(tail)) {
		return false, nil
	}
	err = r.ReadAt(ctx, tail, r.Size()-int64(len(tail)))
	return string(tail) == parquetMagic, robocache.At(err, robocache.Where{"file": name})
}

// episodesReader reads columns of the episodes files, one file after the other.
type episodesReader struct {
	want   map[string]*episodeColumn
	starts []int      // number of rows before each file
	rows   int        // of the files that were begun
	tops   []*pq.Node // the wanted columns of the current file
}

// beginFile checks the columns of a file and returns the wanted ones.
func (r *episodesReader) beginFile(_ string, f *pq.File) ([]*pq.Node, error) {
	if f.Rows > math.MaxInt32 {
		return nil, robocache.ResourceLimit("lerobot", nil, "").
			Expected("fewer than 2^31 episodes", fmt.Sprint(f.Rows))
	}
	r.tops = r.tops[:0]
	for _, top := range f.Root.Children {
		c := r.want[top.Name]
		if c == nil {
			continue
		}
		if top.Group() || top.MaxRep > 0 {
			return nil, robocache.Malformed(
				"lerobot",
				robocache.Where{"column": top.Name},
				"",
			).Expected("a number a row", "a list or group")
		}
		isTwice := slices.Contains(r.tops, f.Column(top.Name))
		if isTwice || len(c.values) != r.rows {
			return nil, missingColumn(top.Name, "earlier files")
		}
		c.exists = true
		r.tops = append(r.tops, top)
	}
	for name, c := range r.want {
		if c.exists && f.Rows > 0 && f.Column(name) == nil {
			return nil, missingColumn(name, "this file")
		}
	}
	r.starts = append(r.starts, r.rows)
	r.rows += int(f.Rows)
	return r.tops, nil
}

// readGroup appends the values of a row group of the current file. A null is an error unless the
// column can be recounted.
func (r *episodesReader) readGroup(
	ctx context.Context,
	in robocache.Ranged,
	f *pq.File,
	g int,
) error {
	for _, top := range r.tops {
		col, err := pq.ReadColumn(ctx, in, f, g, top, nil, tableLimit)
		if err != nil {
			return err
		}
		values, err := pq.Float64s(col)
		isNull := func(def uint8) bool { return int(def) != top.MaxDef }
		null := slices.IndexFunc(col.Def, isNull) // row of the first null
		switch {
		case null < 0: // only err can be wrong
		case err == nil && recountable[top.Name]:
			values = withNulls(col, values)
		default: // the null is reported instead of err
			err = robocache.Malformed("lerobot", robocache.Where{"row": null}, "").
				Expected("a number", "null")
		}
		if err != nil {
			return robocache.At(err, robocache.Where{"row_group": g, "column": top.Name})
		}
		c := r.want[top.Name]
		c.values = append(c.values, values...)
	}
	return nil
}

// eachEpisodesGroup calls eachGroup for all episodes files in order. It returns the number of rows.
func (d *Dataset) eachEpisodesGroup(
	ctx context.Context,
	want func(column string) bool,
	leaves func(name string, f *pq.File) ([]*pq.Node, error),
	read func(r robocache.Ranged, f *pq.File, group int) error,
) (rows int, err error) {
	for _, name := range d.paths.episodes {
		fileRows, err := d.eachGroup(
			ctx,
			name,
			want,
			func(f *pq.File) ([]*pq.Node, error) { return leaves(name, f) },
			read,
		)
		if err != nil {
			return rows, err
		}
		rows += fileRows
	}
	return rows, nil
}

// inEpisodesFile adds the episodes file to err. If err names a row, the row was counted over all
// files, and it is replaced by the row in its file. starts holds the number of rows before each
// file.
func inEpisodesFile(err error, names []string, starts []int) error {
	name := "meta/episodes"
	if len(names) == 1 {
		name = names[0]
	}
	var e *robocache.Error
	if errors.As(err, &e) {
		if row, ok := e.Where["row"].(int); ok && len(names) > 0 {
			i, found := slices.BinarySearch(starts, row)
			if !found {
				i-- // the last file that starts before the row
			}
			name = names[i]
			e.Where["row"] = row - starts[i]
		}
	}
	return robocache.At(err, robocache.Where{"file": name})
}

// tableLimit bounds a column of the metadata tables.
var tableLimit = pq.Limits{Bytes: 1 << 30}

// missingColumn returns the error about a column that only some episodes files have.
func missingColumn(name, where string) error {
	return robocache.Malformed(
		"lerobot",
		robocache.Where{"column": name},
		"the column is in some episodes files and missing in %s",
		where,
	)
}

// recountable lists the columns that can be derived from the data files. A missing value is not an
// error there; it becomes -1.
var recountable = map[string]bool{
	"length": true, "dataset_from_index": true, "dataset_to_index": true,
	"data/chunk_index": true, "data/file_index": true,
}

// withNulls spreads the values of a column over its rows, with -1 for null rows.
func withNulls(col *pq.Column, values []float64) []float64 {
	out := make([]float64, len(col.Def))
	for i, def := range col.Def {
		out[i] = -1
		if int(def) == col.Leaf.MaxDef && len(values) > 0 {
			out[i] = values[0]
			values = values[1:]
		}
	}
	return out
}

// integers returns the column as integers. NaN becomes -1 if lenient is set.
func (c *episodeColumn) integers(lenient bool) ([]int64, error) {
	out := make([]int64, len(c.values))
	for i, number := range c.values {
		if lenient && math.IsNaN(number) {
			out[i] = -1
			continue
		}
		out[i] = int64(number)
		if float64(out[i]) != number || math.Abs(number) >= 1<<63 {
			return nil, robocache.Malformed("lerobot", robocache.Where{"row": i}, "").
				Expected("an integer", fmt.Sprint(number))
		}
	}
	return out, nil
}

// assembleEpisodes checks the columns against each other and returns the table, sorted by
// episode_index, with the permutation that sorted it.
func assembleEpisodes(
	want map[string]*episodeColumn, total int, raw *infoFile, repair bool,
) (*episodes, []int32, error) {
	columns := tableColumns{want: want}
	ids := columns.integersOf("episode_index")
	columns.length = columns.integersOf("length")
	columns.from = columns.integersOf("dataset_from_index")
	columns.to = columns.integersOf("dataset_to_index")
	columns.chunk = columns.integersOf("data/chunk_index")
	columns.file = columns.integersOf("data/file_index")
	if columns.file == nil {
		// Hand-made datasets use flat names.
		columns.chunk = columns.integersOf("chunk_index")
		columns.file = columns.integersOf("file_index")
	}
	if columns.err != nil {
		return nil, nil, columns.err
	}
	if total > 0 && ids == nil {
		return nil, nil, missingColumn("episode_index", "all of them")
	}
	for i, id := range ids {
		if id < 0 {
			where := robocache.Where{"column": "episode_index", "row": i}
			return nil, nil, malformed(where, "at least 0", fmt.Sprint(id))
		}
	}
	if columns.length == nil {
		columns.length = columns.spans(total)
	}
	e := &episodes{rows: total}
	if len(columns.to) > 0 {
		e.nextRow = slices.Max(columns.to)
	}
	noFile := total > 0 && columns.file == nil && strings.Contains(raw.dataPath, "{")
	e.hasFiles = !noFile // otherwise one finding reports it for all episodes
	lengths, unsure := columns.repairRows(total, noFile)
	// From here on, all columns of e are in the order of perm.
	perm, stored, err := sortEpisodes(ids, repair, columns.sameRows)
	if err != nil {
		return nil, nil, err
	}
	e.stored = stored
	e.setUnsure(unsure, perm)
	e.setIndex(reader.Permute(ids, perm))
	e.length = reader.Permute(lengths, perm)
	total = len(e.length) // perm leaves out repeated rows
	e.sumLengths()
	from := reader.Permute(columns.from, perm)
	if from == nil {
		from = e.from[:total]
	}
	e.file, e.files, err = numberFiles(
		reader.Permute(columns.chunk, perm),
		reader.Permute(columns.file, perm),
		total,
	)
	if err != nil {
		return nil, nil, err
	}
	e.start = rowsInFile(e, from)
	e.cameras = map[string]*camColumns{}
	for i := range raw.features {
		f := &raw.features[i]
		if f.DType != "video" || !want["videos/"+f.key+"/file_index"].exists {
			continue // a camera that no episode names is reported later
		}
		if e.cameras[f.key], err = columns.cameraColumns(f.key, perm, total); err != nil {
			return nil, nil, err
		}
	}
	return e, perm, nil
}

// tableColumns are columns of the episodes table. A column that no file has is nil.
type tableColumns struct {
	want   map[string]*episodeColumn
	length []int64
	from   []int64 // dataset_from_index
	to     []int64 // dataset_to_index
	chunk  []int64 // of the data file
	file   []int64
	err    error // joins the errors of columns that are not integers
}

// integersOf returns a column as integers, or nil if no file has it. It adds to c.err.
func (c *tableColumns) integersOf(name string) []int64 {
	column := c.want[name]
	if column == nil || !column.exists {
		return nil
	}
	values, err := column.integers(recountable[name])
	c.err = errors.Join(c.err, robocache.At(err, robocache.Where{"column": name}))
	return values
}

// spans returns the length of each episode according to dataset_from_index and dataset_to_index. It
// is -1 if the table lacks these columns.
func (c *tableColumns) spans(total int) []int64 {
	out := make([]int64, total)
	for i := range out {
		out[i] = -1
		if c.from != nil && c.to != nil {
			out[i] = c.to[i] - c.from[i]
		}
	}
	return out
}

// repairRows returns the length of the episode in each of total rows, and the rows whose numbers
// are missing or contradict each other. noFile reports that the table names no data file.
func (c *tableColumns) repairRows(total int, noFile bool) ([]int32, map[int]tableFault) {
	lengths := make([]int32, total)
	unsure := map[int]tableFault{}
	for i := range total {
		if noFile {
			unsure[i] = tableFault{"data/file_index", "data/file_index is missing"}
		}
		if fault := c.repairRow(i); fault != nil {
			unsure[i] = *fault
		}
		n, ok := rowCount(c.length[i])
		if !ok {
			unsure[i] = tableFault{"length", fmt.Sprintf("length is %d", c.length[i])}
			n = 0
		}
		lengths[i] = n
	}
	return lengths, unsure
}

// repairRow returns the last fault of a row's numbers, or nil. Negative numbers become 0.
func (c *tableColumns) repairRow(i int) (fault *tableFault) {
	doubt := func(column, format string, args ...any) {
		fault = &tableFault{column, fmt.Sprintf(format, args...)}
	}
	if c.from != nil && c.to != nil && c.to[i]-c.from[i] != c.length[i] {
		doubt(
			"dataset_to_index",
			"length is %d, dataset_from_index is %d and dataset_to_index %d",
			c.length[i],
			c.from[i],
			c.to[i],
		)
	}
	if c.from != nil && c.from[i] < 0 {
		doubt("dataset_from_index", "dataset_from_index is %d", c.from[i])
		c.from[i] = 0
	}
	var number fileNumber
	if c.file != nil {
		number.file = c.file[i]
	}
	if c.chunk != nil {
		number.chunk = c.chunk[i]
	}
	if number.file < 0 || number.chunk < 0 {
		doubt(
			"data/file_index",
			"data/chunk_index is %d and data/file_index %d",
			number.chunk,
			number.file,
		)
		if c.file != nil {
			c.file[i] = 0
		}
		if c.chunk != nil {
			c.chunk[i] = 0
		}
	}
	return fault
}

// sameRows reports whether two rows of the table name the same rows and frames of the same files.
func (c *tableColumns) sameRows(a, b int) bool {
	for _, column := range [][]int64{c.file, c.chunk, c.from, c.length} {
		if column != nil && column[a] != column[b] {
			return false
		}
	}
	return sameVideos(c.want, a, b)
}

// cameraColumns returns the columns of a camera for the episodes in the order of perm.
func (c *tableColumns) cameraColumns(key string, perm []int32, total int) (*camColumns, error) {
	prefix := "videos/" + key + "/"
	chunks := c.integersOf(prefix + "chunk_index")
	files := c.integersOf(prefix + "file_index")
	if c.err != nil {
		return nil, c.err
	}
	out := &camColumns{
		from: reader.Permute(c.want[prefix+"from_timestamp"].values, perm),
		to:   reader.Permute(c.want[prefix+"to_timestamp"].values, perm),
	}
	var err error
	out.file, out.files, err = numberFiles(
		reader.Permute(chunks, perm),
		reader.Permute(files, perm),
		total,
	)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"stream": key})
	}
	return out, nil
}

// sameVideos reports whether two rows of the table name the same parts of the same video files.
func sameVideos(want map[string]*episodeColumn, a, b int) bool {
	for name, c := range want {
		if strings.HasPrefix(name, "videos/") && c.exists && c.values[a] != c.values[b] {
			return false
		}
	}
	return true
}

// compareFiles orders files by chunk, then by number.
func compareFiles(a, b fileNumber) int {
	return cmp.Or(cmp.Compare(a.chunk, b.chunk), cmp.Compare(a.file, b.file))
}

// numberFiles replaces pairs of numbers by positions in the sorted list of distinct pairs. A nil
// column counts as zeros.
func numberFiles(chunk, file []int64, total int) ([]int32, []fileNumber, error) {
	pairs := make([]fileNumber, total)
	for i := range pairs {
		if chunk != nil {
			pairs[i].chunk = chunk[i]
		}
		if file != nil {
			pairs[i].file = file[i]
		}
		if pairs[i].chunk < 0 || pairs[i].file < 0 {
			return nil, nil, robocache.Malformed(
				"lerobot",
				robocache.Where{"row": i},
				"chunk %d, file %d",
				pairs[i].chunk,
				pairs[i].file,
			)
		}
	}
	files := slices.Clone(pairs)
	slices.SortFunc(files, compareFiles)
	files = slices.Clone(slices.Compact(files))
	out := make([]int32, total)
	for i, p := range pairs {
		if i > 0 && p == pairs[i-1] {
			out[i] = out[i-1]
			continue
		}
		k, _ := slices.BinarySearchFunc(files, p, compareFiles)
		out[i] = int32(k)
	}
	return out, files, nil
}

// rowsInFile returns the row in its data file at which each episode starts: its dataset_from_index
// minus the smallest of that file. The rows of the file are proven before one is delivered
// (proof.go).
func rowsInFile(e *episodes, from []int64) []int64 {
	base := make([]int64, len(e.files))
	for i := range base {
		base[i] = math.MaxInt64
	}
	for i, f := range e.file {
		base[f] = min(base[f], from[i])
	}
	start := make([]int64, len(from))
	for i, f := range e.file {
		start[i] = from[i] - base[f]
	}
	return start
}

// readEpisodeTasksV3 reads the tasks column of every episodes file.
func (d *Dataset) readEpisodeTasksV3(ctx context.Context) (*episodeTasks, error) {
	tasks := &episodeTasks{}
	var leaf *pq.Node // nil if the file lacks the column
	total, err := d.eachEpisodesGroup(
		ctx,
		func(c string) bool { return c == "tasks" },
		func(_ string, f *pq.File) ([]*pq.Node, error) {
			leaf = f.Column("tasks").OnlyLeaf()
			if leaf == nil || leaf.Type != pq.ByteArray || leaf.MaxRep > 1 {
				leaf = nil
				return nil, nil
			}
			return []*pq.Node{leaf}, nil
		},
		func(r robocache.Ranged, f *pq.File, g int) error {
			if leaf == nil {
				for range f.Groups[g].Rows {
					tasks.addEpisode(nil)
				}
				return nil
			}
			col, err := pq.ReadColumn(ctx, r, f, g, leaf, nil, tableLimit)
			if err != nil {
				return err
			}
			var row []string
			value := 0
			for i := range col.Entries {
				// An entry with repetition level 0 begins the next row.
				if i > 0 && (col.Rep == nil || col.Rep[i] == 0) {
					tasks.addEpisode(row)
					row = row[:0]
				}
				if col.Def == nil || int(col.Def[i]) == leaf.MaxDef {
					row = append(row, string(col.Item(value)))
					value++
				}
			}
			if col.Entries > 0 {
				tasks.addEpisode(row)
			}
			return nil
		},
	)
	if err != nil {
		return nil, err
	}
	if total != d.episodes.rows {
		return nil, changedError(fmt.Sprintf("%d rows", d.episodes.rows), fmt.Sprint(total))
	}
	return tasks.sortedBy(d.paths.permutation), nil
}
