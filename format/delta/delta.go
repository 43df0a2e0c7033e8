package delta

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/handles"
	"github.com/goatnote-inc/robocache/format/internal/lru"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

const (
	defaultBudget  = 512 << 20
	smallestBudget = 1 << 20
	maxOpen        = 64 // data files that are open at a time
	maxElements    = 1 << 24
)

var formatOptions = map[string]string{
	"version":   "version of the table; default: the last one",
	"episode":   "column that numbers the episodes; default: episode_index",
	"frame":     "column that orders the rows of an episode; default: frame_index, else the order in the files",
	"timestamp": "column of times: seconds in floating point, whole nanoseconds, or Delta's timestamp; default: timestamp_ns, else timestamp",
}

func init() {
	robocache.Register(robocache.Format{Name: "delta", Detect: Detect, Options: formatOptions, Write: Write, WriteOptions: writeOptions, Sharding: sharding, Open: reader.Opener(Open)})
}

// Dataset is an open version of a table.
type Dataset struct {
	reader.Base
	t        *table
	files    []*add
	footers  []*pq.File
	groups   []group
	episodes []episode
	columns  []*readColumn
	byKey    map[string]*readColumn
	clock    *readColumn // nil: the rate is
	task     *readColumn
	rate     robocache.Rate
	budget   int64
	open     *handles.Pool[string, robocache.Ranged]
	chunks   *lru.Cache[chunkKey, *chunk]
	lib      *video.Library
}

// group is a row group of a file.
type group struct{ file, group int }

// run is rows of an episode that follow each other in a row group.
type run struct {
	group, first, n int
	frame           int64
}

type episode struct {
	index  int64
	runs   []run
	starts []int // row of the episode at which each run begins
	n      int
}

// readColumn is a column that is read.
type readColumn struct {
	id        int
	field     field
	f         robocache.Feature
	elem      string
	dims      []int
	partition bool
}

var (
	_ robocache.Dataset = (*Dataset)(nil)
	_ robocache.Masker  = (*Dataset)(nil)
	_ video.Source      = (*Dataset)(nil)
)

// Detect says whether there is a log.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	s, err := store.OpenFor(uri, opt)
	if errors.Is(err, robocache.ErrMisuse) || errors.Is(err, robocache.ErrMalformed) {
		return false, nil // a file
	} else if err != nil {
		return false, err
	}
	defer store.Close(s)
	err = guard.Try(func() {
		if list(ctx, s).last < 0 {
			guard.Fail(robocache.ErrNotFound)
		}
	})
	if errors.Is(err, robocache.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Open opens the table at uri.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	return reader.Open(uri, opt, func(s store.Store) (*Dataset, error) { return OpenStore(ctx, s, opt) })
}

// OpenStore opens the table in a store. Close of the dataset closes the store.
func OpenStore(ctx context.Context, s store.Store, opt robocache.OpenOptions) (d *Dataset, err error) {
	defer guard.Malformed("delta open", &err)
	version := int64(-1)
	op.Settle(opt.Options, formatOptions, map[string]reader.Set{"version": reader.Whole(&version, 0, math.MaxInt64)})
	t := guard.Must(load(ctx, s, version, reader.Budget(opt, defaultBudget, smallestBudget)))
	return open(ctx, s, t, opt)
}

func open(ctx context.Context, s store.Store, t *table, opt robocache.OpenOptions) (d *Dataset, err error) {
	defer guard.Malformed("delta open", &err)
	budget := reader.Budget(opt, defaultBudget, smallestBudget)
	d = &Dataset{Base: reader.Base{Bytes: s}, t: t, files: t.sorted(), byKey: map[string]*readColumn{}, budget: budget, chunks: lru.New[chunkKey, *chunk](budget / 2),
		open: handles.New[string, robocache.Ranged](maxOpen, math.MaxInt64)}
	d.lib = video.NewLibrary(func(ctx context.Context, name string) (robocache.Ranged, error) { return s.Open(ctx, name) }, max(budget/8, smallestBudget))
	opened := false
	defer func(d *Dataset) {
		if !opened {
			_ = d.open.Close()
		}
	}(d)
	d.About = &robocache.Info{URI: s.URI(), Format: "delta", Version: strconv.FormatInt(t.version, 10), Robot: t.meta.Config["robocache.robot_type"]}
	d.rate, _ = robocache.RateOf(t.meta.Config["robocache.fps"])
	if !opt.HZ.Zero() {
		d.rate = opt.HZ
	}
	d.About.FPS = d.rate
	d.readFooters(ctx)
	d.describe(ctx)
	named := func(option string, names ...string) *readColumn {
		if name := opt.Options[option]; name != "" {
			names = []string{name}
		}
		for _, name := range names {
			for _, c := range d.columns {
				if c.field.Name == name {
					return c
				}
			}
		}
		if name := opt.Options[option]; name != "" {
			guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: string(op), Where: robocache.Where{"option": option}, Msg: "the table has no column " + name + " of numbers"})
		}
		return nil
	}
	number, frame := named("episode", "episode_index"), named("frame", "frame_index")
	if frame == number {
		frame = nil
	}
	if number == nil {
		unsupported("a table without the column episode_index: nothing says which rows are one episode", "name the column that does: --option episode=COLUMN, in Python options={'episode': 'COLUMN'}")
	}
	d.clock, d.task = named("timestamp", nanosColumn, secondsColumn), named("", "task")
	d.findEpisodes(ctx, number, frame)
	for _, c := range d.columns {
		c.f.Default = c == number || c == frame || slices.ContainsFunc(bookkeeping, func(b column) bool { return b.Name == c.field.Name })
		if c != d.task {
			d.byKey[c.f.Key] = c
			d.About.Features = append(d.About.Features, c.f)
		}
	}
	opened = true
	return d, nil
}

// readFooters reads those of all data files.
func (d *Dataset) readFooters(ctx context.Context) {
	d.footers = make([]*pq.File, len(d.files))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i, a := range d.files {
		g.Go(func() (err error) {
			defer guard.File("delta open", a.name, &err)
			defer guard.In("file", a.name)
			r := guard.Must(d.Bytes.Open(gctx, a.name))
			defer r.Close()
			if r.Size() != a.Size {
				guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: string(op), Msg: "the file is not the one in the log", Want: fmt.Sprintf("%d bytes", a.Size), Got: fmt.Sprint(r.Size())})
			}
			d.footers[i] = guard.Must(pq.Open(gctx, r, nil))
			return nil
		})
	}
	guard.Check(g.Wait())
	var held int64
	for i, f := range d.footers {
		held += f.MemoryBytes()
		for k := range f.Groups {
			d.groups = append(d.groups, group{i, k})
		}
	}
	d.fits(held)
}

// fits refuses what would take more than half of the budget.
func (d *Dataset) fits(held int64) {
	if held > d.budget/2 {
		guard.Fail(&robocache.Error{Class: robocache.ErrResourceLimit, Op: string(op), Msg: "footers and places of rows", Want: fmt.Sprintf("at most %d bytes", d.budget/2), Got: fmt.Sprint(held), Hint: "a larger memory budget"})
	}
}

// describe makes features of the table's columns. What has none is left out, with a finding.
func (d *Dataset) describe(ctx context.Context) {
	for _, fd := range d.t.fields {
		c := &readColumn{id: len(d.columns), field: fd, partition: slices.Contains(d.t.meta.Partitions, fd.Name)}
		var lists int
		c.elem, lists = fd.element()
		own := fd.feature()
		c.f = robocache.Feature{Key: fd.Name, Kind: robocache.KindNumeric, DType: dtypes[c.elem], Shape: []int{1}}
		why := ""
		switch {
		case own != nil && own.Kind != robocache.KindNumeric && lists == 0 && c.elem == map[robocache.Kind]string{robocache.KindVideo: "struct", robocache.KindImage: "binary", robocache.KindText: "string", robocache.KindEvent: "string"}[own.Kind]:
			c.f = *own
		case own != nil && own.Kind == robocache.KindNumeric && dtypes[c.elem] != 0 && own.DType.Size() > 0 && sizeOf(own.Shape) > 0 && (len(own.Shape) == lists || lists == 0 && own.Scalar()):
			if c.f = *own; lists > 0 {
				c.dims = own.Shape
			}
		case c.elem == "string" && lists == 0:
			c.f.Kind, c.f.DType = robocache.KindText, robocache.String
		case dtypes[c.elem] == 0:
			why = "columns of this type are not read"
		case lists > 0:
			if c.dims = d.shapeOf(ctx, c, lists); c.dims == nil {
				why = "its lists have no fixed length"
			}
			c.f.Shape = c.dims
		}
		if why != "" {
			d.About.Findings = append(d.About.Findings, robocache.Finding{Severity: robocache.SeverityWarning, Code: "column-left-out", Where: robocache.Where{"column": fd.Name}, Message: fmt.Sprintf("%s (%s)", why, fd.Type), NotDelivered: fd.Name})
			continue
		}
		for i, a := range d.files {
			s, _ := a.stats()
			n, said := s.Nulls[fd.Name]
			if !c.partition && (d.footers[i].Column(fd.Name) == nil || said && fmt.Sprint(n) != "0") && c.f.Kind != robocache.KindText {
				c.f.Masked = true
			}
		}
		d.columns = append(d.columns, c)
	}
}

// sizeOf is the number of elements of a shape; 0 of one that is none, or too large.
func sizeOf(shape []int) int {
	n := 1
	for _, k := range shape {
		if k < 1 || k > maxElements || n*k > maxElements {
			return 0
		}
		n *= k
	}
	return n
}

// shapeOf is the lengths of the lists of a column in its first row; nil where there are none.
func (d *Dataset) shapeOf(ctx context.Context, c *readColumn, lists int) []int {
	for g := range d.groups {
		leaf := d.leaf(g, c, "")
		if leaf == nil || leaf.MaxRep != lists {
			continue
		}
		col := d.column(ctx, g, leaf, nil)
		counts := make([]int, lists+1) // entries of the first row by level of repetition
		for i := range col.Entries {
			if rep := col.Rep[i]; i > 0 && rep == 0 {
				break
			} else if int(rep) <= lists {
				counts[rep]++
			}
		}
		dims, whole := make([]int, lists), 1
		for k := range dims { // lists that go on at a level, of those that began above it
			dims[k] = counts[k+1]/whole + 1
			whole *= dims[k]
		}
		if sizeOf(dims) > 0 && col.Len() > 0 {
			return dims
		}
	}
	return nil
}

// findEpisodes brings the rows into the order of their episodes (D2).
func (d *Dataset) findEpisodes(ctx context.Context, number, frame *readColumn) {
	type numbered struct {
		run
		episode int64
	}
	var runs []numbered
	last := map[int64]int64{} // frame after the last one, where no column says it
	for g := range d.groups {
		of := d.integers(ctx, g, number)
		var at []int64
		if frame != nil {
			at = d.integers(ctx, g, frame)
		}
		for i, e := range of {
			k := last[e]
			if at != nil {
				k = at[i]
			}
			last[e] = k + 1
			if p := len(runs) - 1; p >= 0 && runs[p].group == g && runs[p].episode == e && runs[p].first+runs[p].n == i && runs[p].frame+int64(runs[p].n) == k {
				runs[p].n++
				continue
			}
			runs = append(runs, numbered{run{g, i, 1, k}, e})
		}
		d.chunks.Clear()
		d.fits(int64(len(runs)) * 48)
	}
	slices.SortStableFunc(runs, func(a, b numbered) int {
		return cmp.Or(cmp.Compare(a.episode, b.episode), cmp.Compare(a.frame, b.frame))
	})
	var twice int64
	for from := 0; from < len(runs); {
		first := len(d.episodes)
		var ends []int64 // frame after the last of each episode of this number
		for ; from < len(runs) && (len(d.episodes) == first || runs[from].episode == d.episodes[first].index); from++ {
			r := runs[from]
			k := slices.IndexFunc(ends, func(end int64) bool { return end <= r.frame })
			if k < 0 {
				k = len(ends)
				ends = append(ends, 0)
				d.episodes = append(d.episodes, episode{index: r.episode})
			}
			e := &d.episodes[first+k]
			e.runs, e.starts, e.n = append(e.runs, r.run), append(e.starts, e.n), e.n+r.n
			ends[k] = r.frame + int64(r.n)
			d.About.Frames += int64(r.n)
		}
		if len(ends) > 1 {
			twice++
		}
	}
	if twice > 0 {
		d.About.Findings = append(d.About.Findings, robocache.Finding{Severity: robocache.SeverityWarning, Code: "episode-twice", Count: twice, Where: robocache.Where{"column": number.field.Name},
			Message: fmt.Sprintf("%d episode numbers have rows of the same frame more than once: each set of them is an episode of its own", twice), Hint: "number appended episodes behind those that are there"})
	}
	d.About.Episodes = len(d.episodes)
}

// integers are the values of a column in a row group.
func (d *Dataset) integers(ctx context.Context, g int, c *readColumn) []int64 {
	k := d.chunk(ctx, g, c)
	if c.f.DType.Float() || c.dims != nil || c.f.Kind != robocache.KindNumeric || k.valid != nil {
		unsupported("the column "+c.field.Name+" numbers rows, and is no column of integers without nulls", "")
	}
	return robocache.Int64s(nil, c.f.DType, k.data)
}

// place finds a row.
func (d *Dataset) place(r robocache.Row) (g, row int) {
	guard.Check(op.Episode(len(d.episodes), r.Episode))
	e := &d.episodes[r.Episode]
	guard.Check(op.Row(e.n, r))
	k := sort.SearchInts(e.starts, r.Index+1) - 1
	return e.runs[k].group, e.runs[k].first + r.Index - e.starts[k]
}

// Video holds the files that columns of video refer to.
func (d *Dataset) Video() *video.Library { return d.lib }

// Close closes the files and the store.
func (d *Dataset) Close() error {
	return errors.Join(d.open.Close(), d.lib.Close(), d.Base.Close())
}

// Len is the number of rows of an episode; 0 for one that is not there.
func (d *Dataset) Len(e int) int {
	if e < 0 || e >= len(d.episodes) {
		return 0
	}
	return d.episodes[e].n
}

// Episode gives the metadata of one episode.
func (d *Dataset) Episode(ctx context.Context, e int) (out robocache.Episode, err error) {
	defer guard.Malformed("delta episode", &err)
	guard.Check(op.Episode(len(d.episodes), e))
	out = robocache.Episode{Position: e, Index: d.episodes[e].index, Length: d.Len(e)}
	for _, text := range guard.Must(d.Text(ctx, "task", reader.Rows(e, 0, out.Length))) {
		if text != "" && !slices.Contains(out.Tasks, text) {
			out.Tasks = append(out.Tasks, text)
		}
	}
	return out, ctx.Err()
}

// Times gives the timestamps of an episode's rows.
func (d *Dataset) Times(ctx context.Context, e int, key string) (out []int64, err error) {
	defer guard.Malformed("delta times", &err)
	guard.Check(op.Episode(len(d.episodes), e))
	if key != "" && d.byKey[key] == nil {
		return nil, op.NoStream(key)
	}
	n := d.Len(e)
	c := d.clock
	if c == nil || c.f.Masked {
		if d.rate.Zero() {
			return nil, robocache.NoClock(string(op), robocache.Where{"episode": e}, "the table has no column timestamp")
		}
		return reader.Grid(d.rate, n), ctx.Err()
	}
	b := make([]byte, n*c.f.DType.Size())
	guard.Check(d.gather(ctx, c, reader.Rows(e, 0, n), b, nil))
	if !c.f.DType.Float() {
		out = robocache.Int64s(make([]int64, 0, n), c.f.DType, b)
		for i := range out {
			if strings.HasPrefix(c.elem, "timestamp") {
				out[i] *= 1000
			}
		}
		return out, ctx.Err()
	}
	for _, s := range robocache.Float64s(nil, c.f.DType, b) {
		if !(math.Abs(s) < math.MaxInt64/1e9) {
			malformed(fmt.Sprintf("a timestamp of %v s", s), nil)
		}
		ns := int64(math.Round(s * 1e9))
		if c.f.DType == robocache.Float32 && !d.rate.Zero() { // it rounds times of a grid
			if at := d.rate.Nanos(int64(math.Round(s * d.rate.Float()))); float32(float64(at)/1e9) == float32(s) {
				ns = at
			}
		}
		out = append(out, ns)
	}
	return out, ctx.Err()
}

// rowsIn is how many rows a row group has.
func (d *Dataset) rowsIn(g int) int {
	n := d.footers[d.groups[g].file].Groups[d.groups[g].group].Rows
	if n > d.budget {
		guard.Fail(&robocache.Error{Class: robocache.ErrResourceLimit, Op: string(op), Where: robocache.Where{"file": d.files[d.groups[g].file].name}, Msg: fmt.Sprintf("a row group of %d rows", n)})
	}
	return int(n)
}

var le = binary.LittleEndian
