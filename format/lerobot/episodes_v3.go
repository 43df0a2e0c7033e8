package lerobot

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
)

const episodesTemplate = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"

// episodeColumn is one projected column over all episodes files.
type episodeColumn struct {
	ints   []int64
	floats []float64
	rows   int  // rows read so far
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
	names, err := d.episodeFiles(ctx)
	if err != nil {
		return err
	}
	want := d.wanted()
	total := 0
	starts := make([]int, len(names)) // rows before each file
	for i, name := range names {
		starts[i] = total
		n, err := d.readEpisodesFile(ctx, name, want, total)
		if err != nil {
			return robocache.At(err, robocache.Where{"file": name})
		}
		total += n
	}
	if total == 0 && d.raw.totalEpisodes > 0 {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"file": "meta/episodes"}, Want: fmt.Sprintf("%d episodes, as info.json says", d.raw.totalEpisodes), Got: "none", Hint: "fetch the files again"}
	}
	e, perm, err := assembleEpisodes(want, total, d.raw)
	if err != nil {
		return inEpisodesFile(err, names, starts)
	}
	if perm != nil {
		d.find(warn("episodes-unsorted", "meta/episodes", "episodes are not in the order of episode_index: readers that look up by row show wrong frames", "sort the rows"))
	}
	if !want["data/file_index"].seen && total > 0 {
		d.find(warn("episodes-columns", "meta/episodes", "data/chunk_index and data/file_index are missing: taken from other columns", "write the episodes table anew"))
	}
	d.eps, d.paths.perm = e, perm
	d.paths.episodes = names
	d.info.Episodes, d.info.Frames = e.n(), e.from[e.n()]
	return nil
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

// episodeFiles lists the episodes files, in the order of their numbers.
func (d *Dataset) episodeFiles(ctx context.Context) ([]string, error) {
	names, err := d.paths.numbered(ctx, "meta/episodes", episodesTemplate, ".parquet")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 && d.raw.totalEpisodes != 0 { // a set of which nothing was recorded yet has none
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Op: "lerobot", Where: robocache.Where{"file": "meta/episodes"}, Msg: "no episodes file is there", Hint: "a v3 dataset has meta/episodes/chunk-000/file-000.parquet"}
	}
	return names, nil
}

func (d *Dataset) readEpisodesFile(ctx context.Context, name string, want map[string]*episodeColumn, before int) (int, error) {
	var tops []*pq.Node
	rows, err := d.eachGroup(ctx, name, func(c string) bool { return want[c] != nil }, func(f *pq.File) ([]*pq.Node, error) {
		if f.Rows > math.MaxInt32 {
			return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "lerobot", Want: "fewer than 2^31 episodes", Got: fmt.Sprint(f.Rows)}
		}
		for _, top := range f.Root.Children {
			c := want[top.Name]
			if c == nil {
				continue
			}
			if top.Group() || top.MaxRep > 0 {
				return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"column": top.Name}, Want: "a number a row", Got: "a list or group"}
			}
			if c.rows != before {
				return nil, missingColumn(top.Name, "earlier files")
			}
			c.rows += int(f.Rows)
			c.seen = true
			tops = append(tops, top)
		}
		return tops, nil
	}, func(r robocache.Ranged, f *pq.File, g int) error {
		for _, top := range tops {
			col, err := pq.ReadColumn(ctx, r, f, g, top, nil, tableLimit)
			if err != nil {
				return err
			}
			if err := want[top.Name].take(col); err != nil {
				return robocache.At(err, robocache.Where{"row_group": g, "column": top.Name})
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for k, c := range want {
		if c.seen && c.rows != before+rows {
			return 0, missingColumn(k, "this file")
		}
	}
	return rows, nil
}

// tableLimit bounds a column of the metadata's tables.
var tableLimit = pq.Limits{Bytes: 1 << 30}

func missingColumn(name, where string) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"column": name}, Msg: "the column is in some episodes files and missing in " + where}
}

func (c *episodeColumn) take(col *pq.Column) error {
	if col.Def != nil {
		for i, v := range col.Def {
			if int(v) != col.Leaf.MaxDef {
				return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"row": i}, Want: "a number", Got: "null"}
			}
		}
	}
	switch col.Leaf.Type {
	case pq.Double:
		b := col.Data()
		for i := 0; i < len(b); i += 8 {
			c.float(math.Float64frombits(binary.LittleEndian.Uint64(b[i:])))
		}
	case pq.Float:
		b := col.Data()
		for i := 0; i < len(b); i += 4 {
			c.float(float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))))
		}
	default:
		v, err := toInt64(col)
		if err != nil {
			return err
		}
		if c.floats == nil {
			c.ints = append(c.ints, v...)
			return nil
		}
		for _, n := range v {
			c.float(float64(n))
		}
	}
	return nil
}

// float adds a number. Files differ in types (0 may be an integer in one): from the first float on, all are floats.
func (c *episodeColumn) float(v float64) {
	if c.ints != nil {
		c.floats, c.ints = c.real(), nil
	}
	c.floats = append(c.floats, v)
}

// whole gives the column as integers: pandas writes them as float64 once a null was near.
func (c *episodeColumn) whole() ([]int64, error) {
	if len(c.floats) == 0 {
		return c.ints, nil
	}
	out := make([]int64, len(c.floats))
	for i, f := range c.floats {
		out[i] = int64(f)
		if float64(out[i]) != f || math.Abs(f) > 1<<53 {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"row": i}, Want: "an integer", Got: fmt.Sprint(f)}
		}
	}
	return out, nil
}

func (c *episodeColumn) real() []float64 {
	if len(c.floats) > 0 || len(c.ints) == 0 {
		return c.floats
	}
	out := make([]float64, len(c.ints))
	for i, v := range c.ints {
		out[i] = float64(v)
	}
	return out
}

// assembleEpisodes checks the columns against each other and makes the table, sorted by episode_index.
func assembleEpisodes(want map[string]*episodeColumn, total int, raw *infoFile) (*episodes, []int, error) {
	var bad error
	ints := func(name string) []int64 {
		c := want[name]
		if c == nil || !c.seen {
			return nil
		}
		v, err := c.whole()
		if err != nil {
			bad = errors.Join(bad, robocache.At(err, robocache.Where{"column": name}))
		}
		return v
	}
	ids, length := ints("episode_index"), ints("length")
	from, to := ints("dataset_from_index"), ints("dataset_to_index")
	chunk, file := ints("data/chunk_index"), ints("data/file_index")
	if file == nil {
		// Hand-made sets use flat names.
		chunk, file = ints("chunk_index"), ints("file_index")
	}
	if bad != nil {
		return nil, nil, bad
	}
	if ids == nil && total > 0 {
		return nil, nil, missingColumn("episode_index", "all of them")
	}
	if length == nil {
		if from == nil || to == nil {
			if total > 0 {
				return nil, nil, missingColumn("length", "all of them, and so is dataset_from_index or dataset_to_index")
			}
		}
		length = make([]int64, total)
		for i := range length {
			length[i] = to[i] - from[i]
		}
	}
	e := &episodes{length: make([]int32, total)}
	at := func(i int) robocache.Where { return robocache.Where{"episode": ids[i], "row": i} }
	for i, n := range length {
		var ok bool
		if e.length[i], ok = rowCount(n); !ok || ids[i] < 0 {
			return nil, nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: at(i), Msg: fmt.Sprintf("episode_index %d, length %d", ids[i], n)}
		}
		if from != nil && to != nil && to[i]-from[i] != n {
			return nil, nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: at(i), Want: fmt.Sprintf("dataset_to_index − dataset_from_index = length %d", n), Got: fmt.Sprintf("%d − %d", to[i], from[i])}
		}
	}
	perm, err := order(ids)
	if err != nil {
		return nil, nil, err
	}
	e.setIndex(permute(ids, perm))
	e.length = permute(e.length, perm)
	e.count()
	from, chunk, file = permute(from, perm), permute(chunk, perm), permute(file, perm)
	if from == nil {
		from = e.from[:total]
	}
	if file == nil {
		if total > 0 && raw.dataPath != "" && strings.Contains(raw.dataPath, "{") {
			return nil, nil, missingColumn("data/file_index", "all of them")
		}
		file = make([]int64, total)
	}
	if chunk == nil {
		chunk = make([]int64, total)
	}
	e.file, e.files, err = numberFiles(chunk, file)
	if err != nil {
		return nil, nil, err
	}
	e.start = rowsInFile(e, from)
	e.cams = map[string]*camColumns{}
	for i := range raw.features {
		key := raw.features[i].key
		if raw.features[i].DType != "video" {
			continue
		}
		vc, vf := ints("videos/"+key+"/chunk_index"), ints("videos/"+key+"/file_index")
		if bad != nil {
			return nil, nil, bad
		}
		if vf == nil {
			continue // described later: a camera that no episode names
		}
		if vc == nil {
			vc = make([]int64, total)
		}
		c := &camColumns{}
		if c.file, c.files, err = numberFiles(permute(vc, perm), permute(vf, perm)); err != nil {
			return nil, nil, robocache.At(err, robocache.Where{"stream": key})
		}
		c.from = permute(want["videos/"+key+"/from_timestamp"].real(), perm)
		c.to = permute(want["videos/"+key+"/to_timestamp"].real(), perm)
		e.cams[key] = c
	}
	return e, perm, nil
}

// numberFiles turns pairs of numbers into positions in the sorted list of the different ones.
func numberFiles(chunk, file []int64) ([]int32, []fileNumber, error) {
	seen := map[fileNumber]int32{}
	var files []fileNumber
	for i := range file {
		p := fileNumber{chunk[i], file[i]}
		if p.chunk < 0 || p.file < 0 {
			return nil, nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"row": i}, Msg: fmt.Sprintf("chunk %d, file %d", p.chunk, p.file)}
		}
		if _, ok := seen[p]; !ok {
			seen[p] = 0
			files = append(files, p)
		}
	}
	slices.SortFunc(files, func(a, b fileNumber) int {
		return cmp.Or(cmp.Compare(a.chunk, b.chunk), cmp.Compare(a.file, b.file))
	})
	for i, p := range files {
		seen[p] = int32(i)
	}
	out := make([]int32, len(file))
	for i := range file {
		out[i] = seen[fileNumber{chunk[i], file[i]}]
	}
	return out, files, nil
}

// rowsInFile says where in its data file each episode starts: its dataset_from_index less the smallest of the file. What the file
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
	var b interner
	total := 0
	for _, name := range d.paths.episodes {
		n, err := d.readTasksOf(ctx, name, &b)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"file": name})
		}
		total += n
	}
	if b.t.start == nil {
		return &episodeTasks{start: make([]int32, d.eps.n()+1)}, nil
	}
	if total != d.eps.n() {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"file": "meta/episodes", "column": "tasks"}, Want: fmt.Sprintf("%d rows", d.eps.n()), Got: fmt.Sprint(total)}
	}
	return b.t.reorder(d.paths.perm), nil
}

func (d *Dataset) readTasksOf(ctx context.Context, name string, b *interner) (int, error) {
	var leaf *pq.Node
	return d.eachGroup(ctx, name, func(c string) bool { return c == "tasks" }, func(f *pq.File) ([]*pq.Node, error) {
		if top := f.Column("tasks"); top != nil {
			leaf = top.OnlyLeaf()
		}
		if leaf == nil || leaf.Type != pq.ByteArray || leaf.MaxRep > 1 {
			leaf = nil
			return nil, nil
		}
		return []*pq.Node{leaf}, nil
	}, func(r robocache.Ranged, f *pq.File, g int) error {
		if leaf == nil {
			for range f.Groups[g].Rows {
				b.add(nil)
			}
			return nil
		}
		col, err := pq.ReadColumn(ctx, r, f, g, leaf, nil, tableLimit)
		if err != nil {
			return err
		}
		var row [][]byte
		value := 0
		for i := range col.Entries {
			if i > 0 && (col.Rep == nil || col.Rep[i] == 0) {
				b.add(row)
				row = row[:0]
			}
			if col.Def == nil || int(col.Def[i]) == leaf.MaxDef {
				row = append(row, col.Item(value))
				value++
			}
		}
		if col.Entries > 0 {
			b.add(row)
		}
		return nil
	})
}
