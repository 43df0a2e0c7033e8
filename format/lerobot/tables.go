package lerobot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/handles"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/store"
)

// maxOpen bounds how many data files are open at once.
const maxOpen = 32

// dataFile is an open data file.
type dataFile struct {
	robocache.Ranged
	name string
}

// handle is an open data file of the pool, by its position in the table.
type handle = handles.Handle[int32, *dataFile]

// tables reads and caches decoded columns of the data files.
type tables struct {
	dataset   *Dataset
	cache     *lru.Cache[unitKey, any]
	handles   *handles.Pool[int32, *dataFile]
	moved     atomic.Pointer[map[int32]relocated]
	moving    sync.Mutex
	indexOnce sync.Once
	byFile    fileIndex
	isRemote  atomic.Bool // reads of some data file are network requests
	// compared marks, by file, the data files that were compared with the episodes table. It is nil
	// if Open compared all.
	compared []atomic.Bool
}

// relocated is the position of an episode's rows as found in the data. It overrides the episodes
// table.
type relocated struct {
	start int64 // row of its first row in its file
	err   error // why its rows cannot be read; the other episodes of the file can
}

// tableFile is the parsed footer of a data file.
type tableFile struct {
	d    *Dataset
	name string
	pq   *pq.File
}

// limits returns the limits of decoding the file.
func (f *tableFile) limits() pq.Limits { return pq.Limits{Bytes: f.d.memoryLimit} }

// newTables returns tables whose decoded columns occupy at most budget bytes.
func newTables(d *Dataset, budget int64) *tables {
	return &tables{
		dataset: d,
		cache:   lru.New[unitKey, any](budget),
		handles: handles.New[int32, *dataFile](maxOpen, math.MaxInt64),
	}
}

// close closes the open files and clears the cache.
func (t *tables) close() {
	_ = t.handles.Close()
	t.cache.Clear()
}

// fileCount returns the number of data files.
func (t *tables) fileCount() int { return len(t.dataset.episodes.files) }

// dataPlace returns the values of the template variables for a data file.
func (d *Dataset) dataPlace(file int32) place { return d.placeOf(d.episodes.files[file], "") }

// placeOf returns the values of the template variables for a data file, or for a video file of
// camera key.
func (d *Dataset) placeOf(f fileNumber, key string) place {
	if d.raw.major == 2 {
		return place{episode: f.file, chunk: f.chunk, key: key}
	}
	return place{chunk: f.chunk, file: f.file, key: key}
}

// fileOf returns the data file of an episode, and the row of its first row in that file.
func (t *tables) fileOf(episode int) (file int32, start int64) {
	e := t.dataset.episodes
	file, start = e.file[episode], e.start[episode]
	if m := t.moved.Load(); m != nil {
		if r, ok := (*m)[int32(episode)]; ok {
			start = r.start
		}
	}
	return file, start
}

// NumbersIn returns the data file with the rows of an episode and the first row there, as the
// episodes table lists them. exists reports whether a file exists. The result is "" if no file is
// known.
func (d *Dataset) NumbersIn(
	episode int, exists func(name string) bool,
) (name string, row int64) {
	if episode < 0 || episode >= d.episodes.count() || d.episodes.isUnsure(episode) {
		return "", 0
	}
	for _, template := range d.paths.data {
		name, err := expandTemplate(template, d.dataPlace(d.episodes.file[episode]))
		if err == nil {
			name, err = store.CleanName(name)
		}
		if err == nil && exists(name) {
			return name, d.episodes.start[episode]
		}
	}
	return "", 0
}

// badEpisode returns why the rows of an episode cannot be read, or nil if nothing is known.
func (t *tables) badEpisode(episode int) error {
	if m := t.moved.Load(); m != nil {
		return (*m)[int32(episode)].err
	}
	return nil
}

// openFile opens a data file. The caller must return the handle to t.handles.
func (t *tables) openFile(ctx context.Context, file int32) (*handle, error) {
	return t.handles.Get(file, func() (*dataFile, error) {
		f, err := t.openDataFile(ctx, file)
		return f, t.withEpisode(err, file)
	})
}

// openDataFile opens a data file under the first of its possible paths that exists. It reads a
// small file of v2, or a small remote file, into memory.
func (t *tables) openDataFile(ctx context.Context, file int32) (*dataFile, error) {
	d := t.dataset
	var r robocache.Ranged
	name, err := d.paths.tryPaths(
		ctx,
		d.paths.data,
		d.dataPlace(file),
		func(name string) (err error) {
			r, err = d.Bytes.Open(ctx, name)
			return err
		},
	)
	if err != nil {
		return nil, err
	}
	if store.Remote(r) {
		t.isRemote.Store(true)
	}
	isSmall := d.raw.major == 2 && r.Size() <= smallFile
	isOneRead := store.Remote(r) && r.Size() <= clusterChunk
	if isSmall || isOneRead {
		if r, err = readIntoMemory(ctx, r); err != nil {
			return nil, err
		}
	}
	return &dataFile{r, name}, nil
}

// withEpisode adds the file's first episode to err.
func (t *tables) withEpisode(err error, file int32) error {
	if eps := t.episodesOf(file); len(eps) > 0 {
		return robocache.At(
			err,
			robocache.Where{"episode": t.dataset.episodes.indexAt(int(eps[0]))},
		)
	}
	return err
}

// footer returns the parsed footer of a data file.
func (t *tables) footer(ctx context.Context, file int32) (f *tableFile, err error) {
	// This path runs for every window of a batch, so it avoids the closure.
	if v, ok := t.cache.Peek(unitKey{file: file, col: unitFooter}); ok {
		return v.(*tableFile), nil
	}
	defer crash.Recover("lerobot footer", &err)
	load, err := t.cache.Load(
		ctx,
		unitKey{file: file, col: unitFooter},
		func() (any, int64, error) {
			h, err := t.openFile(ctx, file)
			if err != nil {
				return nil, 0, err
			}
			defer t.handles.Put(h)
			f, err := pq.Open(ctx, h.Value, nil)
			if err != nil {
				err = robocache.At(err, robocache.Where{"file": h.Value.name})
				return nil, 0, t.withEpisode(err, file)
			}
			return &tableFile{d: t.dataset, name: h.Value.name, pq: f}, f.MemoryBytes(), nil
		},
	)
	if err != nil {
		return f, err
	}
	return load.(*tableFile), nil
}

// groupOf returns the row group that holds a row.
func (f *tableFile) groupOf(row int64) int {
	g := f.pq.Groups
	return sort.Search(len(g), func(i int) bool { return g[i].Start+g[i].Rows > row })
}

// errMoved reports that the rows of a file were found elsewhere. The caller must call fileOf again.
var errMoved = robocache.Temporary("lerobot", nil, "rows were found elsewhere")

// span is one decoded unit and the rows of the file that it covers.
type span struct {
	file       int32
	start, end int64
	value      any
}

// spanOf returns the span of a unit that covers a whole row group.
func spanOf(file int32, group pq.Group, unit any) span {
	return span{file: file, start: group.Start, end: group.Start + group.Rows, value: unit}
}

// loadUnit returns the unit of column num that holds a row of a file. It calls read if the unit is
// not cached.
func (t *tables) loadUnit(
	ctx context.Context,
	file int32,
	row int64,
	num int32,
	read decodeUnit,
) (span, error) {
	f, g, err := t.findGroup(ctx, file, row)
	if err != nil {
		return span{}, err
	}
	unit, err := t.loadGroup(ctx, f, unitKey{file: file, group: int32(g), col: num}, read)
	if err != nil {
		return span{}, err
	}
	return spanOf(file, f.pq.Groups[g], unit), nil
}

// findGroup returns the footer of a file and the row group that holds a row.
func (t *tables) findGroup(ctx context.Context, file int32, row int64) (*tableFile, int, error) {
	f, err := t.footer(ctx, file)
	if err != nil {
		return nil, 0, err
	}
	if err := t.compareFile(ctx, f, file); err != nil {
		return nil, 0, err
	}
	g := f.groupOf(row)
	if g == len(f.pq.Groups) {
		return nil, 0, t.missingRow(ctx, f, file)
	}
	return f, g, nil
}

// loadGroup returns a unit of a row group. If it is not cached, the rows of the group are proven
// and read decodes the unit.
func (t *tables) loadGroup(
	ctx context.Context,
	f *tableFile,
	key unitKey,
	read decodeUnit,
) (any, error) {
	if v, ok := t.cache.Peek(key); ok {
		return v, nil
	}
	return t.cache.Load(ctx, key, func() (v any, size int64, err error) {
		if err := t.prove(ctx, f, key.file, int(key.group)); err != nil {
			return v, size, err
		}
		h, err := t.openFile(ctx, key.file)
		if err != nil {
			return v, size, err
		}
		defer t.handles.Put(h)
		group := int(key.group)
		v, size, err = read(ctx, t.ranged(h, f, key.file, group), f, group)
		if err == nil {
			return v, size, nil
		}
		var e *robocache.Error
		if errors.As(err, &e) && e.Where["file"] == infoPath {
			return nil, 0, err // wrongWidth is about info.json, not about the data file
		}
		return nil, 0, robocache.At(err, robocache.Where{"file": f.name, "row_group": group})
	})
}

// readLeaf decodes the only leaf of the column, with the declared shape.
func (c *column) readLeaf(
	ctx context.Context,
	r robocache.Ranged,
	f *tableFile,
	group int,
) (*pq.Column, error) {
	top, err := c.topNode(f)
	if err != nil {
		return nil, err
	}
	leaf := top.OnlyLeaf()
	if leaf == nil {
		return nil, malformed(
			robocache.Where{"column": c.key},
			"numbers of shape "+fmt.Sprint(c.shape),
			"a group of columns",
		)
	}
	shape := c.shape
	if leaf.MaxRep == 0 {
		if elementCount(shape) != 1 {
			return nil, c.wrongWidth(1)
		}
		shape = []int{} // the column has one number per row, not a list
	}
	col, err := pq.ReadColumn(ctx, r, f.pq, group, leaf, shape, f.limits())
	if errors.Is(err, robocache.ErrMalformed) && leaf.MaxRep == 1 {
		// If all rows have one other length, the declaration is wrong. Reading the column with that
		// length proves it.
		chunk, _ := f.pq.Chunk(group, leaf)
		rows := f.pq.Groups[group].Rows
		if rows > 1 && chunk.Values%rows == 0 && chunk.Values/rows != int64(elementCount(shape)) {
			width := int(chunk.Values / rows)
			_, widthErr := pq.ReadColumn(ctx, r, f.pq, group, leaf, []int{width}, f.limits())
			if widthErr == nil {
				return nil, c.wrongWidth(width)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return col, nil
}

// wrongWidth returns the error about a declared shape that contradicts every row of the data.
func (c *column) wrongWidth(found int) error {
	e := infoError(
		robocache.ErrMalformed,
		"/features/"+escapePointer(c.key)+"/shape",
		fmt.Sprintf(
			"the shape is wrong: rows of the data have %d values, but %d are declared",
			found,
			elementCount(c.shape),
		),
	)
	e.Hint = fmt.Sprintf("write the shape of the data, [%d]", found)
	return e
}

// elementCount returns the number of elements of a shape.
func elementCount(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}

// fileIndex lists the episodes of each file, ordered by their start in it.
type fileIndex struct {
	first    []int32 // by file: position in episodes of its first episode; one more at the end
	episodes []int32 // all episodes, file by file
}

// episodesOf returns the positions of a file's episodes, ordered by their start.
func (t *tables) episodesOf(file int32) []int32 {
	t.indexOnce.Do(func() {
		e := t.dataset.episodes
		t.byFile = indexFiles(
			e.file,
			len(e.files),
			func(a, b int32) bool { return e.start[a] < e.start[b] },
		)
	})
	return t.byFile.of(file)
}

// of returns the episodes of a file.
func (x *fileIndex) of(file int32) []int32 {
	if int(file)+1 >= len(x.first) {
		return nil
	}
	return x.episodes[x.first[file]:x.first[file+1]]
}

// indexFiles groups the episodes by file. file holds the file of each episode, and n is the number
// of files. The episodes of a file are ordered by less, then by position.
func indexFiles(file []int32, n int, less func(a, b int32) bool) fileIndex {
	// A counting sort: first[f+1] counts the episodes of file f, and sums then turn the counts into
	// positions.
	x := fileIndex{first: make([]int32, n+1), episodes: make([]int32, len(file))}
	for _, f := range file {
		if f != unknownFile {
			x.first[f+1]++
		}
	}
	for i := range n {
		x.first[i+1] += x.first[i]
	}
	next := append([]int32(nil), x.first...)
	for e, f := range file {
		if f != unknownFile {
			x.episodes[next[f]] = int32(e)
			next[f]++
		}
	}
	for f := range n {
		if x.first[f+1] < x.first[f]+2 {
			continue
		}
		s := x.episodes[x.first[f]:x.first[f+1]]
		sort.SliceStable(s, func(i, j int) bool { return less(s[i], s[j]) })
	}
	return x
}

// unitKey identifies a cached result of decoding.
type unitKey struct {
	file, group int32
	col         int32 // column number, or one of the unit… constants
	page        int32 // 1 + page for columns that are read page by page, or pageListUnit
}

// pageListUnit is the page in the key of a list of pages.
const pageListUnit = -1

const (
	unitFooter = -1 - iota
	unitProof
	unitTimes
	unitCluster // page is the number of the cluster
	unitFrames  // frames found by time: group is the episode, page the camera's column
)

// decodeUnit decodes one unit of a row group. size is the memory that it occupies.
type decodeUnit = func(
	ctx context.Context, r robocache.Ranged, f *tableFile, group int,
) (value any, size int64, err error)

// malformed returns an error of class ErrMalformed about the dataset.
func malformed(where robocache.Where, want, got string) error {
	return robocache.Malformed("lerobot", where, "").Expected(want, got)
}

// topNode returns the column's node in a file.
func (c *column) topNode(f *tableFile) (*pq.Node, error) {
	top := f.pq.Column(c.key)
	if top == nil {
		return nil, robocache.Malformed(
			"lerobot",
			robocache.Where{"column": c.key},
			"the column is missing in this file",
		)
	}
	return top, nil
}

// decodeNumbers returns a numeric column in its declared type, as []byte.
func (c *column) decodeNumbers(
	ctx context.Context,
	r robocache.Ranged,
	f *tableFile,
	group int,
) (any, int64, error) {
	content, err := c.readLeaf(ctx, r, f, group)
	if err != nil {
		return nil, 0, err
	}
	b, err := pq.Convert(content, c.dtype)
	// pq.Convert names the position of a value. The caller needs its row.
	if e, ok := err.(*robocache.Error); ok && e.Where["value"] != nil {
		e.Where = robocache.Where{"row": e.Where["value"].(int) / max(1, elementCount(c.shape))}
	}
	if err := robocache.At(err, robocache.Where{"column": c.key}); err != nil {
		return nil, 0, err
	}
	return b, int64(cap(b)) + 64, nil
}

// decodeTimes returns a column of seconds as nanoseconds ([]int64), converted from the stored type
// (lerobot.L8).
func (c *column) decodeTimes(
	ctx context.Context,
	r robocache.Ranged,
	f *tableFile,
	group int,
) (any, int64, error) {
	content, err := c.readLeaf(ctx, r, f, group)
	if err != nil {
		return nil, 0, err
	}
	seconds, err := pq.Float64s(content)
	if err := robocache.At(err, robocache.Where{"column": c.key}); err != nil {
		return nil, 0, err
	}
	out := make([]int64, len(seconds))
	for i, s := range seconds {
		out[i] = timestampNanos(s, f.d.raw.fps)
	}
	return out, int64(len(out)) * 8, nil
}

// decodeTexts returns a column of strings as *pq.Column.
func (c *column) decodeTexts(
	ctx context.Context,
	r robocache.Ranged,
	f *tableFile,
	group int,
) (any, int64, error) {
	top, err := c.topNode(f)
	if err != nil {
		return nil, 0, err
	}
	if top.Group() || top.Type != pq.ByteArray || top.MaxRep > 0 {
		return nil, 0, malformed(
			robocache.Where{"column": c.key},
			"a column of texts",
			top.Type.String(),
		)
	}
	col, err := pq.ReadColumn(ctx, r, f.pq, group, top, []int{}, f.limits())
	if err != nil {
		return nil, 0, err
	}
	return col, col.MemoryBytes(), nil
}

// decodeEvents returns a language column as JSON texts ([]string).
func (c *column) decodeEvents(
	ctx context.Context,
	r robocache.Ranged,
	f *tableFile,
	group int,
) (any, int64, error) {
	top, err := c.topNode(f)
	if err != nil {
		return nil, 0, err
	}
	// Tool calls are JSON inside JSON, stored as Arrow's extension type or as plain strings.
	tools := map[*pq.Node]bool{}
	if element := top.Element(); element != nil {
		if t := element.Child("tool_calls"); t != nil {
			for _, l := range t.Leaves(nil) {
				tools[l] = true
			}
		}
	}
	out, err := pq.ReadJSON(
		ctx,
		r,
		f.pq,
		group,
		top,
		func(n *pq.Node) bool { return tools[n] },
		f.limits(),
	)
	if err != nil {
		return nil, 0, err
	}
	var size int64
	for _, s := range out {
		size += int64(len(s)) + 16
	}
	return out, size, nil
}
