package delta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/handles"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

const (
	defaultBudget  = 512 << 20
	smallestBudget = 1 << 20
	maxOpen        = 64 // data files that are open at once
	maxElements    = 1 << 24
	maxTwice       = 1 << 12 // how often a row of an episode may occur
)

var formatOptions = map[string]string{
	"version": "version of the table; default: the last one",
	"episode": "column that numbers the episodes; default: episode_index",
	"frame": "column that orders the rows of an episode; default: frame_index, else " +
		"the order in the files",
	"timestamp": "column of times: numbers, or Delta's timestamp; default: timestamp_ns, " +
		"else timestamp",
	"timestamp_unit": "unit of that column: s, ms, us or ns (default: by their magnitude)",
}

func init() {
	robocache.Register(robocache.Format{
		Name:         "delta",
		Detect:       Detect,
		Options:      formatOptions,
		Write:        Write,
		Keeps:        keepsFeature,
		WriteOptions: writeOptions,
		Sharding:     sharding,
		Open:         reader.Opener(Open),
	})
}

// Dataset is an open version of a table.
type Dataset struct {
	reader.Base
	groups    []group
	episodes  []episode
	columns   map[string]*readColumn // feature key → column
	clock     *readColumn            // nil if the rows have a fixed rate
	unit      int64                  // of clock, in nanoseconds
	unitErr   error                  // set if the unit is unknown
	task      *readColumn            // nil if the table has none
	source    *readColumn            // column sourceColumn; nil if the table has none
	budget    int64
	openFiles *handles.Pool[string, robocache.Ranged]
	chunks    *lru.Cache[chunkKey, *chunk]
	library   *video.Library
}

// group is a row group of a data file.
type group struct {
	*add
	file   *pq.File
	number int
}

// run is a run of consecutive rows of an episode in a row group.
type run struct {
	group, first, n int
	episode, frame  int64
}

type episode struct {
	index  int64
	runs   []run
	starts []int // row of the episode at which each run begins
	n      int
}

// readColumn is a column that is read as a feature.
type readColumn struct {
	name, elem  string
	feature     robocache.Feature
	dims        []int // shape of the lists around a value
	isPartition bool
}

var _ video.Source = (*Dataset)(nil)

// Detect reports whether the folder has a Delta log.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	s, err := store.OpenFor(uri, opt)
	if errors.Is(err, robocache.ErrMisuse) || errors.Is(err, robocache.ErrMalformed) {
		return false, nil // uri is a file
	} else if err != nil {
		return false, err
	}
	defer store.Close(s)
	list, err := s.List(ctx, logDir)
	// http returns ErrUnsupported, because it cannot list.
	if errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrUnsupported) {
		return false, nil
	}
	return slices.ContainsFunc(
		list,
		func(e store.Entry) bool { return logName.MatchString(e.Name) },
	), err
}

// Open opens the table at uri.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	return reader.Open(
		uri,
		opt,
		func(s store.Store) (*Dataset, error) { return OpenStore(ctx, s, opt) },
	)
}

// OpenStore opens the table at the root of a store. Closing the dataset closes the store.
func OpenStore(
	ctx context.Context,
	s store.Store,
	opt robocache.OpenOptions,
) (d *Dataset, err error) {
	defer crash.Recover("delta open", &err)
	version := int64(-1)
	if err := op.Settle(opt.Options, formatOptions,
		map[string]reader.Set{"version": reader.Whole(&version, 0, math.MaxInt64)}); err != nil {
		return d, err
	}
	t, err := loadTable(ctx, s, version, reader.Budget(opt, defaultBudget, smallestBudget))
	if err != nil {
		return d, err
	}
	if t.version < 0 {
		return d, newError(robocache.ErrNotFound, "there is no "+logDir, "")
	}
	return openTable(ctx, s, t, opt)
}

// openTable opens a version of a table whose log was already read.
func openTable(
	ctx context.Context,
	s store.Store,
	t *table,
	opt robocache.OpenOptions,
) (d *Dataset, err error) {
	defer crash.Recover("delta open", &err)
	budget := reader.Budget(opt, defaultBudget, smallestBudget)
	d = &Dataset{
		columns:   map[string]*readColumn{},
		budget:    budget,
		chunks:    lru.New[chunkKey, *chunk](budget / 2),
		openFiles: handles.New[string, robocache.Ranged](maxOpen, math.MaxInt64),
	}
	d.library = video.NewLibrary(s.Open, max(budget/8, smallestBudget))
	d.Base = reader.Base{
		Bytes: s,
		About: &robocache.Info{
			URI:     s.URI(),
			Format:  "delta",
			Version: strconv.FormatInt(t.version, 10),
			Robot:   t.meta.Config["robocache.robot_type"],
			FPS:     opt.HZ,
		},
	}
	d.Offered = robocache.Capabilities{
		Origin: d.Origin,
		Valid:  d.Valid,
	}
	if opt.HZ.Zero() {
		d.About.FPS, _ = robocache.RateOf(t.meta.Config["robocache.fps"])
	}
	defer func(d *Dataset) {
		if d.About.Episodes == 0 { // also after a failure
			_ = d.openFiles.Close()
		}
	}(d)
	if err := d.readFooters(ctx, t); err != nil {
		return d, err
	}
	byName := map[string]*readColumn{}
	for _, fd := range t.fields {
		if c, err := d.describeColumn(ctx, t, &fd); err != nil {
			return d, err
		} else if byName[fd.Name] != nil {
			return d, newError(robocache.ErrMalformed, "two columns have the name "+fd.Name, "")
		} else if c != nil {
			byName[fd.Name] = c
		}
	}
	named := func(option string, names ...string) (*readColumn, error) {
		if name := opt.Options[option]; name != "" {
			if names = []string{name}; byName[name] == nil {
				return nil, newError(
					robocache.ErrMisuse,
					"the table has no column "+name,
					robocache.Nearest(name, slices.Collect(maps.Keys(byName))),
				)
			}
		}
		for _, name := range names {
			if c := byName[name]; c != nil {
				return c, nil
			}
		}
		return nil, nil
	}
	number, err := named("episode", "episode_index")
	if err != nil {
		return d, err
	}
	frame, err := named("frame", "frame_index")
	if err != nil {
		return d, err
	}
	if frame == number {
		frame = nil
	}
	if number == nil {
		return d, unsupported(
			"a table without the column episode_index: the episode of each row is unknown",
			"name the column of episode numbers: "+robocache.Option("options", "episode", "COLUMN"),
		)
	}
	clock, err := named("timestamp", nanosColumn, secondsColumn)
	if err != nil {
		return d, err
	}
	d.clock, d.task = clock, byName["task"]
	if c := byName[sourceColumn]; c != nil && elemOf[c.feature.Kind] == "string" {
		d.source = c
	}
	if err := d.findEpisodes(ctx, number, frame); err != nil {
		return d, err
	}
	if err := d.examineClock(ctx, t, byName, opt); err != nil {
		return d, err
	}
	if err := d.determineUnit(ctx, opt.Options["timestamp_unit"]); err != nil {
		return d, err
	}
	for _, fd := range t.fields {
		if c := byName[fd.Name]; c != nil && c != d.task && c != d.source {
			c.feature.Default = c == number || c == frame ||
				slices.ContainsFunc(bookkeeping, func(b column) bool { return b.Name == c.name })
			if d.columns[c.feature.Key] != nil {
				return d, newError(
					robocache.ErrMalformed,
					"two columns have the key "+c.feature.Key,
					"",
				)
			}
			d.columns[c.feature.Key] = c
			d.About.Features = append(d.About.Features, c.feature)
		}
	}
	// Only the tasks of first rows are listed. Reading all rows would be expensive; Episode does it
	// for one episode.
	if d.task != nil {
		first, known := make([]robocache.Row, d.About.Episodes), map[string]bool{}
		for e := range first {
			first[e].Episode = e
		}
		texts, err := d.Text(ctx, "task", first)
		if err != nil {
			return d, err
		}
		for _, text := range texts {
			if t := (robocache.Task{Index: int64(len(d.About.Tasks)), Text: text}); text != "" &&
				!known[text] {
				d.About.Tasks, known[text] = append(d.About.Tasks, t), true
			}
		}
	}
	return d, nil
}

// readFooters reads the footers of all data files, in the order of their paths.
func (d *Dataset) readFooters(ctx context.Context, t *table) error {
	paths := slices.Sorted(maps.Keys(t.files))
	footers := make([]*pq.File, len(paths))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i, p := range paths {
		g.Go(func() (err error) {
			a := t.files[p]
			name, failed := a.name()
			if failed != nil {
				return failed
			}
			defer crash.RecoverFile("delta open", name, &err)
			located, err := a.name()
			if err != nil {
				return err
			}
			defer robocache.LocateIn(&err, "file", located)
			opened, err := a.name()
			if err != nil {
				return err
			}
			r, err := d.Bytes.Open(gctx, opened)
			if err != nil {
				return err
			}
			defer r.Close()
			if r.Size() != a.Size {
				return robocache.Malformed(string(op), nil, "the file is not the one in the log").
					Expected(fmt.Sprintf("%d bytes", a.Size), fmt.Sprint(r.Size()))
			}
			footers[i], err = pq.Open(gctx, r, nil)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var held int64
	for i, f := range footers {
		held += f.MemoryBytes()
		for k := range f.Groups {
			d.groups = append(d.groups, group{t.files[paths[i]], f, k})
		}
	}
	return d.checkMemory(held)
}

// checkMemory rejects data that occupies more than half of the budget.
func (d *Dataset) checkMemory(held int64) error {
	if held > d.budget/2 {
		return robocache.ResourceLimit(string(op), nil, "").
			Expected(fmt.Sprintf("at most %d bytes", d.budget/2), fmt.Sprint(held)).
			WithHint("Pass a larger memory budget.")
	}
	return nil
}

var elemOf = map[robocache.Kind]string{
	robocache.KindVideo: "struct",
	robocache.KindImage: "binary",
	robocache.KindText:  "string",
	robocache.KindEvent: "string",
}

// describeColumn returns a column that is a feature. A column that cannot be one is left out with a
// finding.
func (d *Dataset) describeColumn(ctx context.Context, t *table, fd *field) (*readColumn, error) {
	c := &readColumn{name: fd.Name, isPartition: slices.Contains(t.meta.Partitions, fd.Name)}
	lists, own := 0, fd.feature()
	c.elem, lists = fd.element()
	c.feature = robocache.Feature{
		Key:   fd.Name,
		Kind:  robocache.KindNumeric,
		DType: dtypes[c.elem],
		Shape: []int{1},
	}
	switch numbers := dtypes[c.elem] != 0; {
	case own != nil && lists == 0 && c.elem != "" && elemOf[own.Kind] == c.elem:
		c.feature = *own
	case own != nil && numbers && own.Kind == robocache.KindNumeric && own.DType.Size() > 0 &&
		elementCount(own.Shape) > 0 && (len(own.Shape) == lists || lists == 0 && own.Scalar()):
		c.feature = *own
	case c.elem == "string" && lists == 0:
		c.feature.Kind, c.feature.DType = robocache.KindText, robocache.String
	case numbers && lists == 1:
		length, err := d.lengthOf(ctx, c)
		if err != nil {
			return nil, err
		}
		c.feature.Shape = []int{length}
	}
	if lists > 0 {
		c.dims = c.feature.Shape
	}
	if c.feature.DType == 0 || c.isPartition && strings.HasPrefix(c.elem, "timestamp") ||
		len(c.dims) != lists ||
		c.feature.Kind == robocache.KindNumeric && elementCount(c.feature.Shape) == 0 {
		d.About.Findings = append(d.About.Findings, robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "column-left-out",
			Where:    robocache.Where{"column": fd.Name},
			Message: fmt.Sprintf(
				"columns of this type, or without a fixed shape, are not read (%s)",
				fd.Type,
			),
			NotDelivered: fd.Name,
		})
		return nil, nil
	}
	for i, g := range d.groups {
		leaf, null := g.file.Column(fd.Name).OnlyLeaf(), g.Partitions[fd.Name] == ""
		if n, isCounted := g.stats().Nulls[fd.Name]; c.isPartition {
		} else if null = g.file.Column(fd.Name) == nil ||
			isCounted && fmt.Sprint(n) != "0"; !isCounted && leaf != nil && leaf.MaxDef > 0 {
			// Writers count nulls only in the first 32 columns, so the file is examined.
			k, _ := g.file.Chunk(g.number, leaf)
			hasNulls := k.Nulls > 0
			if !hasNulls {
				isUnknown := k.Nulls < 0
				if isUnknown {
					content, err := d.readLeaf(ctx, i, leaf, nil)
					if err != nil {
						return nil, err
					}
					isUnknown = slices.ContainsFunc(
						content.Def,
						func(def uint8) bool { return int(def) < leaf.MaxDef },
					)
				}
				hasNulls = isUnknown
			}
			null = hasNulls
		}
		c.feature.Masked = c.feature.Masked || null && c.feature.Kind != robocache.KindText
	}
	return c, nil
}

// elementCount returns the number of elements of a shape, or 0 if the shape is invalid or too
// large.
func elementCount(shape []int) int {
	n := 1
	for _, k := range shape {
		if k < 1 || k > maxElements || n*k > maxElements {
			return 0
		}
		n *= k
	}
	return n
}

// Video returns the library of the files to which video columns refer.
func (d *Dataset) Video() *video.Library { return d.library }

// Close closes the files and the store.
func (d *Dataset) Close() error {
	return errors.Join(d.openFiles.Close(), d.library.Close(), d.Base.Close())
}

// Len returns the number of rows of an episode, or 0 if the episode does not exist.
func (d *Dataset) Len(e int) int {
	if e < 0 || e >= len(d.episodes) {
		return 0
	}
	return d.episodes[e].n
}

// Episode returns the metadata of one episode.
func (d *Dataset) Episode(ctx context.Context, e int) (out robocache.Episode, err error) {
	defer crash.Recover("delta episode", &err)
	if err := op.Episode(len(d.episodes), e); err != nil {
		return out, err
	}
	out = robocache.Episode{Position: e, Index: d.episodes[e].index, Length: d.Len(e)}
	last := ""
	texts, err := d.Text(ctx, "task", reader.Rows(e, 0, out.Length))
	if err != nil {
		return out, err
	}
	for _, text := range texts {
		if text != "" && text != last && !slices.Contains(out.Tasks, text) {
			out.Tasks = append(out.Tasks, text)
		}
		last = text
	}
	return out, ctx.Err()
}

// Times returns the timestamps of an episode's rows.
func (d *Dataset) Times(ctx context.Context, e int, key string) (out []int64, err error) {
	defer crash.Recover("delta times", &err)
	if err := op.Episode(len(d.episodes), e); err != nil {
		return out, err
	}
	if key != "" && d.columns[key] == nil {
		return nil, op.NoStream(key)
	}
	n, c, rate := d.Len(e), d.clock, d.About.FPS
	if c == nil {
		if rate.Zero() {
			return nil, d.About.NoClock(
				string(op),
				robocache.Where{"episode": d.About.EpisodeIndex(e)},
				"the table has no column timestamp",
			)
		}
		return reader.Grid(rate, n), ctx.Err()
	}
	if err := robocache.At(d.unitErr, robocache.Where{"column": c.name}); err != nil {
		return out, err
	}
	b := make([]byte, n*c.feature.DType.Size())
	if err := d.gatherRows(ctx, c, reader.Rows(e, 0, n), b); err != nil {
		return out, err
	}
	out = robocache.Int64s(make([]int64, 0, n), c.feature.DType, b)
	for i, t := range out {
		if t > math.MaxInt64/d.unit || t < math.MinInt64/d.unit {
			return out, newError(
				robocache.ErrMalformed,
				fmt.Sprintf("a timestamp of %d times %d ns", t, d.unit),
				"",
			)
		}
		out[i] = t * d.unit
	}
	for _, s := range robocache.Float64s(nil, c.feature.DType, b)[len(out):] {
		s *= float64(d.unit) / 1e9
		if !(math.Abs(s) < math.MaxInt64/1e9) {
			return out, newError(robocache.ErrMalformed, fmt.Sprintf("a timestamp of %v s", s), "")
		}
		ns := int64(math.Round(s * 1e9))
		if grid := rate.Nanos(int64(math.Round(s * rate.Float()))); c.feature.DType ==
			robocache.Float32 && float32(float64(grid)/1e9) == float32(s) {
			ns = grid // which float32 rounds
		}
		out = append(out, ns)
	}
	return out, ctx.Err()
}

// locateRow returns the row group of a row and its position there.
func (d *Dataset) locateRow(r robocache.Row) (g, row int, err error) {
	if err := op.Episode(len(d.episodes), r.Episode); err != nil {
		return g, row, err
	}
	e := &d.episodes[r.Episode]
	if err := op.Row(d.About, e.n, r); err != nil {
		return g, row, err
	}
	k := sort.SearchInts(e.starts, r.Index+1) - 1
	return e.runs[k].group, e.runs[k].first + r.Index - e.starts[k], nil
}
