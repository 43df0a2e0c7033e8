package loader

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// source is one dataset that batches are made of: its samples, its columns, its files. Most loaders have one; a mixture has several.
type source struct {
	identity sync.Map // of the values of a stream (values)

	a          *assembler
	index      int
	name       string // of a mixture's source
	ds         robocache.Dataset
	cfg        Config // the loader's, with what the mixture says of this source
	line       line
	layout     *layout
	table      *order.Table
	files      frames.Files
	long       map[int]int // rows of the episodes, where an anchor has a clock of its own
	timestamps *timestamps // of streams, for timelines and tolerance checks
	starts     robocache.VideoStarter
	offset     int64 // number of its first sample among those of all sources

	tensors []int // of the layout → of the batch
	texts   []int
	absent  []int // tensors of the batch that this source has nothing for
	pads    map[string]*padded
	lost    []BadEpisode // that opening found, and that are skipped
}

func newSource(ctx context.Context, a *assembler, index, sources int, name string, ds robocache.Dataset, cfg Config) (_ *source, err error) {
	defer func() { err = rowsDo(err) }()
	src := &source{a: a, index: index, name: name, ds: ds, cfg: cfg, pads: map[string]*padded{}}
	if src.line, err = newLine(ds.Info(), &cfg); err != nil {
		return nil, err
	}
	total := int64(cfg.MemoryBudget) / int64(sources)
	src.timestamps = newTimestamps(src.readTimestamps, total/32)
	if cfg.widest, err = src.widest(ctx); err != nil {
		return nil, err
	}
	if src.layout, err = newLayout(ctx, ds, &cfg, &src.line, a.warn); err != nil {
		return nil, err
	}
	if err := src.needsTime(ctx); err != nil {
		return nil, err
	}
	if starts, ok := base(ds).(robocache.VideoStarter); ok {
		src.starts = starts
	}
	if !src.line.grid && src.line.key == "" && !src.layout.timed() {
		src.timestamps.read = ds.Times
	}
	if b, ok := base(ds).(robocache.MemoryLimiter); ok {
		b.LimitMemory(total / 8)
	}
	if err := src.count(ctx); err != nil {
		return nil, err
	}
	if err := src.openFiles(total / 8); err != nil {
		return nil, err
	}
	if err := src.normalizers(ctx); err != nil {
		src.close()
		return nil, err
	}
	if err := src.alignColumns(); err != nil {
		src.close()
		return nil, err
	}
	if err := src.probe(ctx); err != nil {
		src.close()
		return nil, err
	}
	if err := src.augments(); err != nil {
		src.close()
		return nil, err
	}
	return src, nil
}

// needsTime refuses at once what needs the time of rows that have none, and not at the first batch.
func (src *source) needsTime(ctx context.Context) error {
	info := src.ds.Info()
	if !info.FPS.Zero() || info.Clock != "" {
		return nil
	}
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		if !c.timed || c.feature == nil {
			continue
		}
		for e := range info.Episodes {
			if src.ds.Len(e) == 0 {
				continue
			}
			if _, err := src.ds.Times(ctx, e, c.key); errors.Is(err, robocache.ErrNoClock) {
				return robocache.At(err, robocache.Where{"stream": c.key})
			}
			break
		}
	}
	return nil
}

// rowsDo says of an error of rows without a clock what a loader gives without time.
func rowsDo(err error) error {
	var e *robocache.Error
	if !errors.Is(err, robocache.ErrNoClock) || !errors.As(err, &e) {
		return err
	}
	c := *e
	c.Hint += "; without time there are streams on the samples' rows (keys=, anchor=), and windows in rows (delta_indices=)"
	return &c
}

func (src *source) close() {
	if src.files != nil {
		src.files.Close()
	}
}

// count makes the sample table. In skip mode episodes that opening found bad never enter it; else none may be lost.
func (src *source) count(ctx context.Context) error {
	info := src.ds.Info()
	a := src.a
	exclude := map[int]bool{}
	if src.cfg.OnBadEpisode != "skip" {
		if err := robocache.Whole(ctx, src.ds, src.cfg.Episodes, "loader", `on_bad_episode="skip" trains on the rest, and stats()["bad_episodes"] lists what is left out`); err != nil {
			return err
		}
	} else {
		for i := range info.Findings {
			f := &info.Findings[i]
			if f.Severity != robocache.SeverityError {
				continue
			}
			e := -1
			if number, named := f.Where["episode"]; named {
				var ok bool
				if e, ok = robocache.PositionOf(ctx, src.ds, number); !ok || exclude[e] || src.cfg.Episodes != nil && !slices.Contains(src.cfg.Episodes, e) {
					continue
				}
				exclude[e] = true
				a.n.skip.Add(int64(src.ds.Len(e)))
			} else if !f.Lost {
				continue
			}
			src.lost = append(src.lost, BadEpisode{Source: src.index, Episode: e, Error: f.Message})
			a.warn(f.Where.String() + " is left out: " + f.Message)
		}
	}
	var err error
	if src.table, err = order.NewTable(info.Episodes, order.Selection{Episodes: src.cfg.Episodes, DropFirst: src.cfg.DropFirst, DropTail: src.cfg.DropTail}, exclude, src.counts(ctx, exclude), src.line.grid); err != nil {
		return err
	}
	src.table.Print.Format = info.Format
	if n := len(src.table.Emptied); n > 0 {
		a.warn(emptiedText(src.table.Emptied))
	}
	if src.table.Samples() == 0 {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "no samples: the selected episodes are empty"}
	}
	return nil
}

// where names the place of a frame or value, by the episode's number in the dataset.
func (src *source) where(c *column, r robocache.Row) robocache.Where {
	w := robocache.Where{"episode": r.Episode, "stream": c.key}
	if src.name != "" {
		w["dataset"] = src.name
	}
	if ep, err := src.ds.Episode(context.Background(), r.Episode); err == nil {
		w["episode"] = ep.Index
	}
	if r.Index >= 0 {
		w["row"] = r.Index
	}
	return w
}

func (src *source) missing(c *column, r robocache.Row, ref *robocache.FrameRef) error {
	e := &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: src.where(c, r), Msg: "the row has no frame",
		Hint: `on_bad_episode="skip" leaves such episodes out; 'robocache doctor' lists them`}
	if !ref.Missing {
		e.Class, e.Msg, e.Hint = robocache.ErrUnsupported, "a frame of a video stream that is in no video file", ""
	}
	return e
}

// part is what one source gives to a batch under construction.
type part struct {
	u      *unit
	src    *source
	rows   [][]robocache.Row // a window each, n × steps
	places []int32           // which selected episode each sample is in
	slots  []int32           // which sample of the batch each is; nil: the same
}

func (p *part) size() int { return len(p.places) }

// slot is the place in the batch of the part's sample i.
func (p *part) slot(i int) int {
	if p.slots == nil {
		return i
	}
	return int(p.slots[i])
}

// frame is where the k-th frame of a column goes.
func (p *part) frame(c *column, k int) []byte {
	if p.slots != nil {
		k = int(p.slots[k/c.steps])*c.steps + k%c.steps
	}
	data := p.u.batch.Tensors[p.src.tensors[c.entry]].Data
	return data[k*c.outBytes : (k+1)*c.outBytes]
}

// data is the tensor of the batch that entry i of the source's layout goes to.
func (p *part) data(i int) []byte { return p.u.batch.Tensors[p.src.tensors[i]].Data }

// rowsInto gives room for all samples' values of entry i, one after the other: the tensor itself where the part is the whole batch.
// done puts them where they belong.
func (p *part) rowsInto(i int) (dst []byte, done func()) {
	data := p.data(i)
	if p.slots == nil {
		return data, func() {}
	}
	own := &p.src.layout.tensors[i]
	size, wide := own.bytes, p.src.a.form.tensors[p.src.tensors[i]].bytes
	dst = make([]byte, len(p.slots)*size)
	return dst, func() {
		for k, slot := range p.slots {
			if pad := p.src.pads[own.key]; pad != nil {
				pad.place(data[int(slot)*wide:int(slot+1)*wide], dst[k*size:(k+1)*size], own.dtype.Size())
				continue
			}
			copy(data[int(slot)*size:int(slot+1)*size], dst[k*size:(k+1)*size])
		}
	}
}

// resolve finds the rows of the part's samples, numbered as its source does, and those of their windows.
func (p *part) resolve(samples []int64) {
	src := p.src
	n := len(samples)
	if p.rows == nil {
		p.rows = make([][]robocache.Row, len(src.layout.windows))
	}
	p.places = slices.Grow(p.places[:0], n)[:n]
	anchors := slices.Grow(p.rows[0][:0], n)[:n]
	for i, s := range samples {
		r, place := src.table.Row(s)
		anchors[i], p.places[i] = r, int32(place)
	}
	p.rows[0] = anchors
	src.windowRows(p.rows)
}

// begin resolves the part's samples, writes their masks, and counts what is still to come.
func (p *part) begin(samples []int64) (parts int64) {
	src := p.src
	n := len(samples)
	p.resolve(samples)
	p.masks()
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		switch {
		case c.source == fromVideo || c.source == fromStills:
			parts += int64(n * c.steps)
			if c.raw != nil && c.raw.plan != nil {
				p.planRows(c)
			}
			if c.raw != nil && c.aug != nil {
				p.drawRows(c)
			}
		case c.ragged: // counted once for all parts of a batch
		default:
			parts++
		}
	}
	return parts
}

// windowRows fills in the rows of all windows of the anchors.
func (src *source) windowRows(rows [][]robocache.Row) {
	anchors := rows[0]
	for k := 1; k < len(src.layout.windows); k++ {
		offsets := src.layout.windows[k].offsets
		out := slices.Grow(rows[k][:0], len(anchors)*len(offsets))
		for _, r := range anchors {
			length := src.rowsOn(r.Episode)
			for _, o := range offsets {
				row, _ := align.Clamp(r.Index, o, length)
				out = append(out, robocache.Row{Episode: r.Episode, Index: row})
			}
		}
		rows[k] = out
	}
}

// masks says which rows of the windows are padding.
func (p *part) masks() {
	src := p.src
	anchors := p.rows[0]
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		if c.mask < 0 || c.timed {
			continue
		}
		mask := p.data(c.mask)
		offsets := src.layout.windows[c.rows].offsets
		for k, r := range anchors {
			length := src.rowsOn(r.Episode)
			at := p.slot(k) * len(offsets)
			for j, o := range offsets {
				mask[at+j] = 0
				if _, pad := align.Clamp(r.Index, o, length); pad {
					mask[at+j] = 1
				}
			}
		}
	}
}
