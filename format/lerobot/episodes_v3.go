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
	w := map[string]*episodeColumn{}
	for _, k := range []string{
		"episode_index",
		"length",
		"data/chunk_index",
		"data/file_index",
		"dataset_from_index",
		"dataset_to_index",
		"chunk_index",
		"file_index",
	} {
		w[k] = &episodeColumn{}
	}
	for i := range d.raw.features {
		if f := &d.raw.features[i]; f.DType == "video" {
			for _, s := range []string{
				"chunk_index",
				"file_index",
				"from_timestamp",
				"to_timestamp",
			} {
				w["videos/"+f.key+"/"+s] = &episodeColumn{}
			}
		}
	}
	return w
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
	d.paths.episodes = names
	want := d.openColumns()
	var starts []int // number of rows before each file
	before := 0
	var tops []*pq.Node
	total, err := d.eachEpisodesGroup(
		ctx,
		func(c string) bool { return want[c] != nil },
		func(_ string, f *pq.File) ([]*pq.Node, error) {
			if f.Rows > math.MaxInt32 {
				return nil, robocache.ResourceLimit("lerobot", nil, "").
					Expected("fewer than 2^31 episodes", fmt.Sprint(f.Rows))
			}
			tops = tops[:0]
			for _, top := range f.Root.Children {
				c := want[top.Name]
				switch {
				case c == nil:
					continue
				case top.Group() || top.MaxRep > 0:
					return nil, robocache.Malformed(
						"lerobot",
						robocache.Where{"column": top.Name},
						"",
					).Expected("a number a row", "a list or group")
				case len(c.values) != before || slices.Contains(tops, f.Column(top.Name)):
					return nil, missingColumn(top.Name, "earlier files")
				}
				c.exists = true
				tops = append(tops, top)
			}
			for name, c := range want {
				if c.exists && f.Rows > 0 && f.Column(name) == nil {
					return nil, missingColumn(name, "this file")
				}
			}
			starts, before = append(starts, before), before+int(f.Rows)
			return tops, nil
		},
		func(r robocache.Ranged, f *pq.File, g int) error {
			for _, top := range tops {
				col, err := pq.ReadColumn(ctx, r, f, g, top, nil, tableLimit)
				if err != nil {
					return err
				}
				v, err := pq.Float64s(col)
				null := slices.IndexFunc(
					col.Def,
					func(v uint8) bool { return int(v) != top.MaxDef },
				)
				if null >= 0 && err == nil && recountable[top.Name] {
					v, null = withNulls(col, v), -1
				}
				if null >= 0 {
					err = robocache.Malformed("lerobot", robocache.Where{"row": null}, "").
						Expected("a number", "null")
				}
				if err != nil {
					return robocache.At(err, robocache.Where{"row_group": g, "column": top.Name})
				}
				want[top.Name].values = append(want[top.Name].values, v...)
			}
			return nil
		},
	)
	if err != nil {
		return err
	}
	if total == 0 && d.raw.totalEpisodes > 0 {
		return d.noEpisodes("meta/episodes")
	}
	e, perm, err := assembleEpisodes(want, total, d.raw, d.repair)
	if err := inEpisodesFile(err, names, starts); err != nil {
		return err
	}
	if !want["data/file_index"].exists && total > 0 {
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

// inEpisodesFile adds to err the file of its row, and converts the row, which is counted over all
// files, to the row in that file.
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
				i--
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
			out[i], values = values[0], values[1:]
		}
	}
	return out
}

// integers returns the column as integers. NaN becomes -1 if lenient is set.
func (c *episodeColumn) integers(lenient bool) ([]int64, error) {
	out := make([]int64, len(c.values))
	for i, f := range c.values {
		if lenient && f != f {
			out[i] = -1
			continue
		}
		out[i] = int64(f)
		if float64(out[i]) != f || math.Abs(f) >= 1<<63 {
			return nil, robocache.Malformed("lerobot", robocache.Where{"row": i}, "").
				Expected("an integer", fmt.Sprint(f))
		}
	}
	return out, nil
}

// assembleEpisodes checks the columns against each other and returns the table, sorted by
// episode_index, with the permutation that sorted it.
func assembleEpisodes(
	want map[string]*episodeColumn, total int, raw *infoFile, repair bool,
) (*episodes, []int32, error) {
	var bad error
	ints := func(name string) []int64 { // nil if no file has the column
		c := want[name]
		if c == nil || !c.exists {
			return nil
		}
		v, err := c.integers(recountable[name])
		bad = errors.Join(bad, robocache.At(err, robocache.Where{"column": name}))
		return v
	}
	ids, length := ints("episode_index"), ints("length")
	from, to := ints("dataset_from_index"), ints("dataset_to_index")
	chunk, file := ints("data/chunk_index"), ints("data/file_index")
	if file == nil {
		// Hand-made datasets use flat names.
		chunk, file = ints("chunk_index"), ints("file_index")
	}
	switch {
	case bad != nil:
		return nil, nil, bad
	case total == 0:
	case ids == nil:
		return nil, nil, missingColumn("episode_index", "all of them")
	}
	e := &episodes{length: make([]int32, total), rows: total}
	if length == nil {
		length = make([]int64, total)
		for i := range length {
			length[i] = -1
			if from != nil && to != nil {
				length[i] = to[i] - from[i]
			}
		}
	}
	if len(to) > 0 {
		e.nextRow = slices.Max(to)
	}
	unsure := map[int]tableFault{} // row → fault
	noFile := total > 0 && file == nil && strings.Contains(raw.dataPath, "{")
	e.hasFiles = !noFile // otherwise one finding reports it for all episodes
	for i, n := range length {
		if ids[i] < 0 {
			where := robocache.Where{"column": "episode_index", "row": i}
			return nil, nil, malformed(where, "at least 0", fmt.Sprint(ids[i]))
		}
		doubt := func(column, format string, args ...any) {
			unsure[i] = tableFault{column, fmt.Sprintf(format, args...)}
		}
		if noFile {
			doubt("data/file_index", "data/file_index is missing")
		}
		if from != nil && to != nil && to[i]-from[i] != n {
			doubt(
				"dataset_to_index",
				"length is %d, dataset_from_index is %d and dataset_to_index %d",
				n,
				from[i],
				to[i],
			)
		}
		if from != nil && from[i] < 0 {
			doubt("dataset_from_index", "dataset_from_index is %d", from[i])
			from[i] = 0
		}
		if file != nil && file[i] < 0 || chunk != nil && chunk[i] < 0 {
			var f fileNumber
			if file != nil {
				f.file = file[i]
				file[i] = 0
			}
			if chunk != nil {
				f.chunk = chunk[i]
				chunk[i] = 0
			}
			doubt(
				"data/file_index",
				"data/chunk_index is %d and data/file_index %d",
				f.chunk,
				f.file,
			)
		}
		var ok bool
		if e.length[i], ok = rowCount(n); !ok {
			doubt("length", "length is %d", n)
			e.length[i] = 0
		}
	}
	perm, stored, err := sortEpisodes(ids, repair, func(a, b int) bool {
		return (file == nil || file[a] == file[b]) && (chunk == nil || chunk[a] == chunk[b]) &&
			(from == nil || from[a] == from[b]) && length[a] == length[b] && sameVideos(want, a, b)
	})
	if err != nil {
		return nil, nil, err
	}
	e.stored = stored
	e.setUnsure(unsure, perm)
	e.setIndex(reader.Permute(ids, perm))
	e.length = reader.Permute(e.length, perm)
	total = len(e.length)
	e.sumLengths()
	from = reader.Permute(from, perm)
	if from == nil {
		from = e.from[:total]
	}
	e.file, e.files, err = numberFiles(
		reader.Permute(chunk, perm),
		reader.Permute(file, perm),
		total,
	)
	if err != nil {
		return nil, nil, err
	}
	e.start = rowsInFile(e, from)
	e.cameras = map[string]*camColumns{}
	for i := range raw.features {
		col := "videos/" + raw.features[i].key + "/"
		if c := want[col+"file_index"]; raw.features[i].DType != "video" || !c.exists {
			continue // a camera that no episode names is reported later
		}
		vc, vf := ints(col+"chunk_index"), ints(col+"file_index")
		if bad != nil {
			return nil, nil, bad
		}
		c := &camColumns{
			from: reader.Permute(want[col+"from_timestamp"].values, perm),
			to:   reader.Permute(want[col+"to_timestamp"].values, perm),
		}
		c.file, c.files, err = numberFiles(
			reader.Permute(vc, perm),
			reader.Permute(vf, perm),
			total,
		)
		if err != nil {
			return nil, nil, robocache.At(err, robocache.Where{"stream": raw.features[i].key})
		}
		e.cameras[raw.features[i].key] = c
	}
	return e, perm, nil
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

func compareFiles(a, b fileNumber) int {
	return cmp.Or(cmp.Compare(a.chunk, b.chunk), cmp.Compare(a.file, b.file))
}

// numberFiles replaces pairs of numbers by positions in the sorted list of distinct pairs. A nil
// column counts as zeros.
func numberFiles(chunk, file []int64, total int) ([]int32, []fileNumber, error) {
	of := make([]fileNumber, total)
	for i := range of {
		if chunk != nil {
			of[i].chunk = chunk[i]
		}
		if file != nil {
			of[i].file = file[i]
		}
		if of[i].chunk < 0 || of[i].file < 0 {
			return nil, nil, robocache.Malformed(
				"lerobot",
				robocache.Where{"row": i},
				"chunk %d, file %d",
				of[i].chunk,
				of[i].file,
			)
		}
	}
	files := slices.Clone(of)
	slices.SortFunc(files, compareFiles)
	files = slices.Clone(slices.Compact(files))
	out := make([]int32, total)
	for i, p := range of {
		if i > 0 && p == of[i-1] {
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
	return tasks.finished(d.paths.permutation), nil
}
