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

// episodeColumn is one projected column over all episodes files. Files differ in types (0 may be an
// integer in one, pandas writes integers as float64 once a null was near), and no number in it is
// beyond 2^53.
type episodeColumn struct {
	values []float64
	seen   bool // some file has it
}

// wanted names the columns of the episodes table that Open needs.
func (d *Dataset) wanted() map[string]*episodeColumn {
	w := map[string]*episodeColumn{}
	for _, k := range []string{"episode_index", "length", "data/chunk_index", "data/file_index", "dataset_from_index", "dataset_to_index", "chunk_index", "file_index"} {
		w[k] = &episodeColumn{}
	}
	for i := range d.raw.features {
		if f := &d.raw.features[i]; f.DType == "video" {
			for _, s := range []string{"chunk_index", "file_index", "from_timestamp", "to_timestamp"} {
				w["videos/"+f.key+"/"+s] = &episodeColumn{}
			}
		}
	}
	return w
}

// readEpisodesV3 reads the projected columns of every episodes file.
func (d *Dataset) readEpisodesV3(ctx context.Context) error {
	names, err := d.paths.numbered(ctx, "meta/episodes", episodesTemplate, ".parquet")
	if err != nil {
		return err
	}
	// a set of which nothing was recorded yet has none
	if len(names) == 0 && d.raw.totalEpisodes != 0 {
		return robocache.NotFound("lerobot", robocache.Where{"file": "meta/episodes"}, "no episodes file is there").
			WithHint("a v3 dataset has meta/episodes/chunk-000/file-000.parquet")
	}
	d.paths.episodes = names
	want := d.wanted()
	var starts []int // rows before each file
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
					return nil, robocache.Malformed("lerobot", robocache.Where{"column": top.Name}, "").
						Expected("a number a row", "a list or group")
				case len(c.values) != before || slices.Contains(tops, f.Column(top.Name)):
					return nil, missingColumn(top.Name, "earlier files")
				}
				c.seen = true
				tops = append(tops, top)
			}
			for name, c := range want {
				if c.seen && f.Rows > 0 && f.Column(name) == nil {
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
				if err := robocache.At(
					err,
					robocache.Where{"row_group": g, "column": top.Name},
				); err != nil {
					return err
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
	if !want["data/file_index"].seen && total > 0 {
		d.find(
			warn(
				"episodes-columns",
				"meta/episodes",
				"data/chunk_index and data/file_index are missing: taken from other columns",
				"write the episodes table anew",
			),
		)
	}
	d.take(
		e,
		perm,
		"meta/episodes",
		"episodes are not in the order of episode_index: readers that look up by row show wrong frames",
		"sort the rows",
	)
	return nil
}

// eachEpisodesGroup is eachGroup of all episodes files, one after the other.
func (d *Dataset) eachEpisodesGroup(
	ctx context.Context,
	want func(column string) bool,
	leaves func(name string, f *pq.File) ([]*pq.Node, error),
	read func(r robocache.Ranged, f *pq.File, group int) error,
) (rows int, err error) {
	for _, name := range d.paths.episodes {
		eachGroup, err := d.eachGroup(
			ctx,
			name,
			want,
			func(f *pq.File) ([]*pq.Node, error) { return leaves(name, f) },
			read,
		)
		if err != nil {
			return rows, err
		}
		rows += eachGroup
	}
	return rows, nil
}

// inEpisodesFile says in which file the row of an error is: rows are numbered over all of them.
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

// tableLimit bounds a column of the metadata's tables.
var tableLimit = pq.Limits{Bytes: 1 << 30}

func missingColumn(name, where string) error {
	return robocache.Malformed(
		"lerobot",
		robocache.Where{"column": name},
		"the column is in some episodes files and missing in %s",
		where,
	)
}

// recountable are the columns that the data files can tell: a value that is missing there is no
// error. It becomes -1.
var recountable = map[string]bool{
	"length": true, "dataset_from_index": true, "dataset_to_index": true,
	"data/chunk_index": true, "data/file_index": true,
}

// withNulls spreads the values of a column over its rows and puts -1 where a row is null.
func withNulls(col *pq.Column, values []float64) []float64 {
	out := make([]float64, len(col.Def))
	for i, def := range col.Def {
		if out[i] = -1; int(def) == col.Leaf.MaxDef && len(values) > 0 {
			out[i], values = values[0], values[1:]
		}
	}
	return out
}

// whole gives the column as integers. NaN becomes -1 if lenient is set.
func (c *episodeColumn) whole(lenient bool) ([]int64, error) {
	out := make([]int64, len(c.values))
	for i, f := range c.values {
		if lenient && f != f {
			out[i] = -1
			continue
		}
		if out[i] = int64(f); float64(out[i]) != f || math.Abs(f) >= 1<<63 {
			return nil, robocache.Malformed("lerobot", robocache.Where{"row": i}, "").
				Expected("an integer", fmt.Sprint(f))
		}
	}
	return out, nil
}

// assembleEpisodes checks the columns against each other and makes the table, sorted by
// episode_index.
func assembleEpisodes(
	want map[string]*episodeColumn, total int, raw *infoFile, repair bool,
) (*episodes, []int32, error) {
	var bad error
	ints := func(name string) []int64 { // nil where no file has it
		c := want[name]
		if c == nil || !c.seen {
			return nil
		}
		v, err := c.whole(recountable[name])
		bad = errors.Join(bad, robocache.At(err, robocache.Where{"column": name}))
		return v
	}
	ids, length := ints("episode_index"), ints("length")
	from, to := ints("dataset_from_index"), ints("dataset_to_index")
	chunk, file := ints("data/chunk_index"), ints("data/file_index")
	if file == nil {
		// Hand-made sets use flat names.
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
			if length[i] = -1; from != nil && to != nil {
				length[i] = to[i] - from[i]
			}
		}
	}
	if len(to) > 0 {
		e.nextRow = slices.Max(to)
	}
	unsure := map[int]tableFault{} // by row
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
				f.file, file[i] = file[i], 0
			}
			if chunk != nil {
				f.chunk, chunk[i] = chunk[i], 0
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
			(from == nil || from[a] == from[b]) && length[a] == length[b] &&
			sameVideos(want, a, b)
	})
	if err != nil {
		return nil, nil, err
	}
	e.stored = stored
	e.setUnsure(unsure, perm)
	e.setIndex(reader.Permute(ids, perm))
	e.length = reader.Permute(e.length, perm)
	total = len(e.length)
	e.count()
	from = reader.Permute(from, perm)
	if from == nil {
		from = e.from[:total]
	}
	if e.file, e.files, err = numberFiles(
		reader.Permute(chunk, perm),
		reader.Permute(file, perm),
		total,
	); err != nil {
		return nil, nil, err
	}
	e.start = rowsInFile(e, from)
	e.cams = map[string]*camColumns{}
	for i := range raw.features {
		col := "videos/" + raw.features[i].key + "/"
		if c := want[col+"file_index"]; raw.features[i].DType != "video" || !c.seen {
			continue // a camera that no episode names is described later
		}
		vc, vf := ints(col+"chunk_index"), ints(col+"file_index")
		if bad != nil {
			return nil, nil, bad
		}
		c := &camColumns{
			from: reader.Permute(want[col+"from_timestamp"].values, perm),
			to:   reader.Permute(want[col+"to_timestamp"].values, perm),
		}
		if c.file, c.files, err = numberFiles(
			reader.Permute(vc, perm),
			reader.Permute(vf, perm),
			total,
		); err != nil {
			return nil, nil, robocache.At(err, robocache.Where{"stream": raw.features[i].key})
		}
		e.cams[raw.features[i].key] = c
	}
	return e, perm, nil
}

// sameVideos reports whether two rows of the table name the same parts of the same video files.
func sameVideos(want map[string]*episodeColumn, a, b int) bool {
	for name, c := range want {
		if strings.HasPrefix(name, "videos/") && c.seen && c.values[a] != c.values[b] {
			return false
		}
	}
	return true
}

func compareFiles(a, b fileNumber) int {
	return cmp.Or(cmp.Compare(a.chunk, b.chunk), cmp.Compare(a.file, b.file))
}

// numberFiles turns pairs of numbers into positions in the sorted list of the different ones. A
// column that is nil is zeros.
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

// rowsInFile returns the row of its data file at which each episode starts: its dataset_from_index
// minus the smallest of that file. What the file
// really holds is proven before a row is served (proof.go).
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
	var leaf *pq.Node // nil: the file does not have it
	total, err := d.eachEpisodesGroup(
		ctx,
		func(c string) bool { return c == "tasks" },
		func(_ string, f *pq.File) ([]*pq.Node, error) {
			if leaf = f.Column("tasks").
				OnlyLeaf(); leaf == nil || leaf.Type != pq.ByteArray ||
				leaf.MaxRep > 1 {
				leaf = nil
				return nil, nil
			}
			return []*pq.Node{leaf}, nil
		},
		func(r robocache.Ranged, f *pq.File, g int) error {
			if leaf == nil {
				for range f.Groups[g].Rows {
					tasks.add(nil)
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
					tasks.add(row)
					row = row[:0]
				}
				if col.Def == nil || int(col.Def[i]) == leaf.MaxDef {
					row = append(row, string(col.Item(value)))
					value++
				}
			}
			if col.Entries > 0 {
				tasks.add(row)
			}
			return nil
		},
	)
	if err != nil {
		return nil, err
	}
	if total != d.eps.rows {
		return nil, changed(fmt.Sprintf("%d rows", d.eps.rows), fmt.Sprint(total))
	}
	return tasks.made(d.paths.perm), nil
}
