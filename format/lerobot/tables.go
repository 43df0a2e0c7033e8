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

type handle = handles.Handle[int32, *dataFile]

// tables gives decoded columns of the data files.
type tables struct {
	d       *Dataset
	cache   *lru.Cache[unit, any]
	handles *handles.Pool[int32, *dataFile]
	moved   atomic.Pointer[map[int32]relocated]
	moving  sync.Mutex
	once    sync.Once
	byFile  fileIndex
	remote  atomic.Bool // a data file was opened whose reads are requests
	// compared marks, by file, the data files that were compared with the episodes table; nil if
	// Open compared all.
	compared []atomic.Bool
}

// relocated is the place of an episode as found in the data; it overrides the table.
type relocated struct {
	start int64 // row of its first row in its file
	err   error // why its rows cannot be read; the other episodes of the file can
}

// tableFile is the footer of a data file.
type tableFile struct {
	d    *Dataset
	name string
	pq   *pq.File
}

// limits bound what is decoded of it.
func (f *tableFile) limits() pq.Limits { return pq.Limits{Bytes: f.d.limit} }

func newTables(d *Dataset, budget int64) *tables {
	return &tables{
		d:       d,
		cache:   lru.New[unit, any](budget),
		handles: handles.New[int32, *dataFile](maxOpen, math.MaxInt64),
	}
}

func (t *tables) close() {
	_ = t.handles.Close()
	t.cache.Clear()
}

// files is the number of data files.
func (t *tables) files() int { return len(t.d.eps.files) }

func (d *Dataset) dataPlace(file int32) place { return d.placeOf(d.eps.files[file], "") }

// placeOf gives the variables of the path of a file of the data, or of a camera.
func (d *Dataset) placeOf(f fileNumber, key string) place {
	if d.raw.major == 2 {
		return place{episode: f.file, chunk: f.chunk, key: key}
	}
	return place{chunk: f.chunk, file: f.file, key: key}
}

// fileOf gives the data file of an episode and the row of its first row there.
func (t *tables) fileOf(episode int) (file int32, start int64) {
	e := t.d.eps
	file, start = e.file[episode], e.start[episode]
	if m := t.moved.Load(); m != nil {
		if r, ok := (*m)[int32(episode)]; ok {
			start = r.start
		}
	}
	return file, start
}

// badEpisode returns why the rows of an episode cannot be read; nil if nothing is known.
func (t *tables) badEpisode(episode int) error {
	if m := t.moved.Load(); m != nil {
		return (*m)[int32(episode)].err
	}
	return nil
}

func (t *tables) open(ctx context.Context, file int32) (*handle, error) {
	return t.handles.Get(file, func() (f *dataFile, err error) {
		err = func() error {
			var r robocache.Ranged
			name, err := t.d.paths.try(
				ctx,
				t.d.paths.data,
				t.d.dataPlace(file),
				func(name string) (err error) {
					r, err = t.d.Bytes.Open(ctx, name)
					return err
				},
			)
			if err != nil {
				return err
			}
			if store.Remote(r) {
				t.remote.Store(true)
			}
			if t.d.raw.major == 2 && r.Size() <= smallFile ||
				store.Remote(r) && r.Size() <= clusterChunk {
				inMemoryValue, err := inMemory(ctx, r)
				if err != nil {
					return err
				}
				r = inMemoryValue
			}
			f = &dataFile{r, name}
			return nil
		}()
		return f, t.blame(err, file)
	})
}

// blame adds the first episode of the file.
func (t *tables) blame(err error, file int32) error {
	if eps := t.episodesOf(file); len(eps) > 0 {
		return robocache.At(err, robocache.Where{"episode": t.d.eps.id(int(eps[0]))})
	}
	return err
}

// footer gives the parsed footer of a data file.
func (t *tables) footer(ctx context.Context, file int32) (f *tableFile, err error) {
	// of every window of a batch: without a closure
	if v, ok := t.cache.Peek(unit{file: file, col: unitFooter}); ok {
		return v.(*tableFile), nil
	}
	defer crash.Recover("lerobot footer", &err)
	load, err := t.cache.Load(ctx, unit{file: file, col: unitFooter}, func() (any, int64, error) {
		h, err := t.open(ctx, file)
		if err != nil {
			return nil, 0, err
		}
		defer t.handles.Put(h)
		f, err := pq.Open(ctx, h.Value, nil)
		if err := t.blame(
			robocache.At(err, robocache.Where{"file": h.Value.name}),
			file,
		); err != nil {
			return nil, 0, err
		}
		return &tableFile{d: t.d, name: h.Value.name, pq: f}, f.MemoryBytes(), nil
	})
	if err != nil {
		return f, err
	}
	return load.(*tableFile), nil
}

// group finds the row group of a row.
func (f *tableFile) group(row int64) int {
	g := f.pq.Groups
	return sort.Search(len(g), func(i int) bool { return g[i].Start+g[i].Rows > row })
}

// errMoved says that proof found the rows of a file elsewhere: the caller asks fileOf again.
var errMoved = robocache.Temporary("lerobot", nil, "rows were found elsewhere")

// span is one decoded unit and the rows of the file that it covers.
type span struct {
	file       int32
	start, end int64
	value      any
}

// load gives the unit of column num that holds a row of a file, decoding it with read where it is
// not cached.
func (t *tables) load(
	ctx context.Context,
	file int32,
	row int64,
	num int32,
	read decodeUnit,
) (span, error) {
	f, g, err := t.groupOf(ctx, file, row)
	if err != nil {
		return span{}, err
	}
	v, err := t.fetch(ctx, f, unit{file: file, group: int32(g), col: num}, read)
	if err != nil {
		return span{}, err
	}
	at := f.pq.Groups[g]
	return span{file: file, start: at.Start, end: at.Start + at.Rows, value: v}, nil
}

// groupOf finds the row group of a row.
func (t *tables) groupOf(ctx context.Context, file int32, row int64) (*tableFile, int, error) {
	f, err := t.footer(ctx, file)
	if err != nil {
		return nil, 0, err
	}
	if err := t.compareFile(ctx, f, file); err != nil {
		return nil, 0, err
	}
	g := f.group(row)
	if g == len(f.pq.Groups) {
		return nil, 0, t.short(ctx, f, file)
	}
	return f, g, nil
}

// fetch gives a unit of a row group, decoding it with read where it is not cached, and proving the
// group first.
func (t *tables) fetch(ctx context.Context, f *tableFile, key unit, read decodeUnit) (any, error) {
	if v, ok := t.cache.Peek(key); ok {
		return v, nil
	}
	return t.cache.Load(ctx, key, func() (v any, size int64, err error) {
		if err := t.prove(ctx, f, key.file, int(key.group)); err != nil {
			return v, size, err
		}
		h, err := t.open(ctx, key.file)
		if err != nil {
			return v, size, err
		}
		defer t.handles.Put(h)
		err = func() error {
			content, contentValue, err := read(
				ctx,
				t.ranged(h, f, key.file, int(key.group)),
				f,
				int(key.group),
			)
			if err != nil {
				return err
			}
			v, size = content, contentValue
			return nil
		}()
		var e *robocache.Error
		if errors.As(err, &e) && e.Where["file"] == infoPath {
			return v, size, err
		}
		if err := robocache.At(
			err,
			robocache.Where{"file": f.name, "row_group": int(key.group)},
		); err != nil {
			return v, size, err
		}
		return v, size, nil
	})
}

// read decodes the column's only leaf, with the declared shape.
func (c *column) read(
	ctx context.Context,
	r robocache.Ranged,
	f *tableFile,
	group int,
) (*pq.Column, error) {
	top, err := c.top(f)
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
		if elements(shape) != 1 {
			return nil, c.otherWidth(1)
		}
		shape = []int{}
	}
	col, err := pq.ReadColumn(ctx, r, f.pq, group, leaf, shape, f.limits())
	if errors.Is(err, robocache.ErrMalformed) && leaf.MaxRep == 1 {
		// Where every row is of one other length, it is the declaration that is wrong.
		chunk, _ := f.pq.Chunk(group, leaf)
		if rows := f.pq.Groups[group].Rows; rows > 1 && chunk.Values%rows == 0 &&
			chunk.Values/rows != int64(elements(shape)) {
			width := int(chunk.Values / rows)
			if _, again := pq.ReadColumn(
				ctx,
				r,
				f.pq,
				group,
				leaf,
				[]int{width},
				f.limits(),
			); again == nil {
				return nil, c.otherWidth(width)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return col, nil
}

// otherWidth is the error of a declaration that every row of the data belies.
func (c *column) otherWidth(found int) error {
	e := infoError(
		robocache.ErrMalformed,
		"/features/"+escapePointer(c.key)+"/shape",
		fmt.Sprintf(
			"the shape is wrong: %d values a row are found in the data, %d are declared",
			found,
			elements(c.shape),
		),
	)
	e.Hint = fmt.Sprintf("write the shape that the data has, [%d]", found)
	return e
}

func elements(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}

// fileIndex lists the episodes of each file, by their start in it.
type fileIndex struct {
	first    []int32
	episodes []int32
}

func (t *tables) episodesOf(file int32) []int32 {
	t.once.Do(func() {
		e := t.d.eps
		t.byFile = indexFiles(
			e.file,
			len(e.files),
			func(a, b int32) bool { return e.start[a] < e.start[b] },
		)
	})
	return t.byFile.of(file)
}

func (x *fileIndex) of(file int32) []int32 {
	if int(file)+1 >= len(x.first) {
		return nil
	}
	return x.episodes[x.first[file]:x.first[file+1]]
}

// indexFiles sorts episodes by file, and within a file by less (ties by position).
func indexFiles(file []int32, n int, less func(a, b int32) bool) fileIndex {
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

// unit names one thing that is decoded as a whole, and cached.
type unit struct {
	file, group int32
	col         int32 // column number, or one of the unit… constants
	page        int32 // 1 + page for columns that are read by the page, -1 for the list of pages
}

const (
	unitFooter = -1 - iota
	unitProof
	unitTimes
	unitCluster // page is its number
	unitFrames  // frames found by time: group is the episode, page the camera's column
)

// decodeUnit decodes one unit of a row group. It returns an error if it cannot.
type decodeUnit = func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (value any, size int64, err error)

// malformed is what is wrong with a dataset.
func malformed(where robocache.Where, want, got string) error {
	return robocache.Malformed("lerobot", where, "").Expected(want, got)
}

// top is the column's node in a file.
func (c *column) top(f *tableFile) (*pq.Node, error) {
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

// numbers gives a numeric column in its declared type: []byte.
func (c *column) numbers(
	ctx context.Context,
	r robocache.Ranged,
	f *tableFile,
	group int,
) (any, int64, error) {
	content, err := c.read(ctx, r, f, group)
	if err != nil {
		return nil, 0, err
	}
	b, err := pq.Convert(content, c.dtype)
	if e, ok := err.(*robocache.Error); ok && e.Where["value"] != nil {
		e.Where = robocache.Where{"row": e.Where["value"].(int) / max(1, elements(c.shape))}
	}
	if err := robocache.At(err, robocache.Where{"column": c.key}); err != nil {
		return nil, 0, err
	}
	return b, int64(cap(b)) + 64, nil
}

// timestamps gives a column of seconds as nanoseconds, from the stored type (L8): []int64.
func (c *column) timestamps(
	ctx context.Context,
	r robocache.Ranged,
	f *tableFile,
	group int,
) (any, int64, error) {
	content, err := c.read(ctx, r, f, group)
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

// texts gives a column of strings: *pq.Column.
func (c *column) texts(
	ctx context.Context,
	r robocache.Ranged,
	f *tableFile,
	group int,
) (any, int64, error) {
	top, err := c.top(f)
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

// events gives a language column as JSON texts: []string.
func (c *column) events(
	ctx context.Context,
	r robocache.Ranged,
	f *tableFile,
	group int,
) (any, int64, error) {
	top, err := c.top(f)
	if err != nil {
		return nil, 0, err
	}
	// Tool calls are JSON inside JSON: Arrow's extension type, or plain strings.
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
