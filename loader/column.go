package loader

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/options"
)

// column is one key of a batch: what all kinds of columns have. What one kind alone has, and how it makes its
// part of a batch, is in its kind.
type column struct {
	src     *dataSource
	key     string
	feature *robocache.Feature // nil for the task text and the episode's id
	number  int                // among the source's columns
	sampling
	value
	outputs
	kind kind
	raw  *deviceOp // its batches are raw; nil: they are as the field says
}

// sampling states which rows of a stream a sample holds.
type sampling struct {
	steps  int       // T, 1 without a window
	axis   []int     // the T axis: {steps} with a window
	window int       // index of its rows in source.windows
	span   *[2]int64 // it holds all samples of this span, in ns after the sample
	time   *timing   // nil: it goes by the rows of the timebase
}

// value states what a row or frame is, as stored and in the tensor.
type value struct {
	stored, out robocache.DType
	elems       int     // of a row
	rowBytes    int     // as stored
	outBytes    int     // a row or frame in the tensor
	unit        string  // of the values as they are given
	norm        *affine // nil: not normalised
}

// cast chooses the dtype of the tensor.
func (v *value) cast(to robocache.DType) { v.out, v.outBytes = to, v.elems*to.Size() }

// outputs states where a column's values go in a batch.
type outputs struct {
	entry int // index in Batch.Tensors or Batch.Texts
	count int // index in Batch.Tensors of its lengths; -1
	mask  int // index in Batch.Tensors of its is_pad; -1
}

// kind is what a column is made of.
type kind interface {
	// waits returns how many things a batch waits for, of a part of n samples.
	waits(n int) int
}

// A filler writes a column's part of a batch, as one of the things that the batch waits for. What no filler writes
// comes otherwise: frames through the store of frames (worker.locate), ragged columns in one job a batch for all its
// sources (worker.ragged).
type filler interface {
	fill(w *reader, p *part) error
}

// is reports whether a column is of a kind.
func is[K kind](c *column) bool {
	_, ok := c.kind.(K)
	return ok
}

// image returns the column as one of frames; nil if it is of another kind.
func (c *column) image() *imageColumn {
	i, _ := c.kind.(*imageColumn)
	return i
}

// table returns the column as rows of numbers of one length; nil if it is of another kind.
func (c *column) table() *tableColumn {
	t, _ := c.kind.(*tableColumn)
	return t
}

// isVideo reports whether the column is frames of video files.
func (c *column) isVideo() bool {
	i := c.image()
	return i != nil && !i.still
}

// numbers reports whether the column's rows are numbers, a point cloud's too, and no frames.
func (c *column) numbers() bool {
	return is[*tableColumn](c) || is[*spanColumn](c) || is[*cloudColumn](c) || is[*timesColumn](c)
}

// listed reports whether the column is of a stream of plain numbers.
func (c *column) listed() bool { return is[*tableColumn](c) || is[*spanColumn](c) }

// ragged reports whether its tensor holds what there is, and `<key>_lengths` how much of each sample.
func (c *column) ragged() bool {
	return is[*cloudColumn](c) || is[*spanColumn](c) || is[*timesColumn](c) && c.axis == nil
}

// given returns the dtype that the user gets.
func (c *column) given() robocache.DType {
	if c.raw != nil {
		return c.raw.out
	}
	return c.out
}

// Suffixes of the keys that stand beside another: how many of its entries are of each sample, when they were, and which are padding.
const (
	lengthsSuffix = "_lengths"
	timesSuffix   = "_times"
	padSuffix     = "_is_pad"
)

const defaultTolerance = 1e-4

// makeColumns makes the columns of the wanted keys: video first, then the table in the dataset's order, which is the order of the field's own items.
func (src *source) makeColumns() error {
	info, cfg := src.ds.Info(), &src.cfg
	src.known = keysOf(info)
	known, extra := slices.Clone(src.known), src.generated()
	for _, c := range extra {
		known = append(known, c.key)
	}
	for _, k := range cfg.Keys {
		if !slices.Contains(known, k) {
			return lacks(info, "keys", k, known)
		}
	}
	if err := cfg.withheld(info, known); err != nil {
		return err
	}
	wanted := func(k string) bool { return cfg.Keys == nil || slices.Contains(cfg.Keys, k) }
	if err := cfg.checkWindows(info, known, wanted); err != nil {
		return err
	}
	src.windows = []window{{offsets: []int{0}, nanos: []int64{0}}}
	for pass := range 2 {
		for i := range info.Features {
			f := &info.Features[i]
			if (f.Kind == robocache.KindVideo) != (pass == 0) || !wanted(f.Key) {
				continue
			}
			if _, ok := base(src.ds).(robocache.RaggedDataset); f.Ragged() && !ok || f.Kind == robocache.KindPointCloud && !f.Ragged() {
				reason := "the format " + info.Format + " gives no rows of varying length"
				if cfg.Keys != nil {
					return robocache.Unsupported("loader", robocache.Where{"stream": f.Key}, "%s", reason)
				}
				src.report.warn(f.Key + " is left out: " + reason)
				src.left = append(src.left, NotDelivered{Key: f.Key, Reason: reason})
				continue
			}
			if err := src.addFeature(f); err != nil {
				return err
			}
		}
	}
	for _, c := range extra {
		if !wanted(c.key) {
			continue
		}
		switch {
		case cfg.windowed(c.key) && is[*countColumn](c):
			return robocache.Misuse("loader", robocache.Where{"stream": c.key}, "a window of a number of the sample").
				WithHint("it is that of the sample's own time")
		case cfg.windowed(c.key):
			return textWindow(c.key)
		case !is[*countColumn](c):
			c.out = robocache.String
		}
		if is[*textColumn](c) {
			var err error
			if c.time, err = newTiming(&src.timebase, nil, cfg); err != nil {
				return err
			}
		}
		src.add(c)
	}
	if len(src.columns) == 0 {
		return options.Misuse("keys", "at least one key", "none")
	}
	return nil
}

// withheld refuses a dataset that declares a stream that it cannot give, where keys do not say what is wanted.
func (c *Config) withheld(info *robocache.Info, known []string) error {
	for i := range info.Findings {
		f := &info.Findings[i]
		if c.Keys == nil && f.Severity == robocache.SeverityError && f.NotDelivered != "" && !slices.Contains(known, f.NotDelivered) {
			var e *robocache.Error
			err := info.Withheld(f.NotDelivered)
			if errors.As(err, &e) {
				e.Hint = robocache.Option("keys") + " names what is wanted and goes on without it; or: " + e.Hint
			}
			return err
		}
	}
	return nil
}

// lacks is the error of a key that a dataset does not give: the reason, where it declares one.
func lacks(info *robocache.Info, option, key string, known []string) error {
	return cmp.Or(info.Withheld(key), unknownKey(option, key, known))
}

func unknownKey(option, key string, known []string) error {
	return robocache.Misuse("loader", robocache.Where{"stream": key}, "%s: the dataset has no key %s", option, key).
		WithHint("%s", robocache.Nearest(key, known))
}

func keysOf(info *robocache.Info) []string {
	out := make([]string, len(info.Features))
	for i := range info.Features {
		out[i] = info.Features[i].Key
	}
	return out
}

// add takes a column into the source.
func (src *source) add(c *column) {
	c.src, c.number, c.mask, c.count, c.steps = &src.dataSource, len(src.columns), -1, -1, max(c.steps, 1)
	src.columns = append(src.columns, c)
}

// addFeature makes the column of a feature, and the one that says when the samples of its span were.
func (src *source) addFeature(f *robocache.Feature) (err error) {
	cfg := &src.cfg
	c := &column{key: f.Key, feature: f, sampling: sampling{steps: 1}, value: value{stored: f.DType, out: f.DType, unit: f.Unit}}
	if c.time, err = newTiming(&src.timebase, f, cfg); err != nil {
		return err
	}
	if f.Kind == robocache.KindText || f.Kind == robocache.KindEvent {
		if cfg.windowed(f.Key) {
			return textWindow(f.Key)
		}
		c.kind, c.out = &textColumn{column: c}, robocache.String
		if f.Kind == robocache.KindEvent {
			c.out = robocache.JSON
		}
		src.add(c)
		return nil
	}
	if err := src.setWindow(c); err != nil {
		return robocache.At(err, robocache.Where{"stream": f.Key})
	}
	switch {
	case f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage:
		frames := &imageColumn{column: c, still: f.Kind == robocache.KindImage}
		c.kind = frames
		chooseFrame(frames, cfg)
	case f.Ragged():
		c.kind = &cloudColumn{column: c}
	case c.span != nil:
		c.kind = &spanColumn{column: c}
	default:
		rows := &tableColumn{column: c}
		rows.leader = rows
		c.kind = rows
	}
	if c.numbers() {
		c.elems = f.Elements()
		c.rowBytes = c.elems * f.DType.Size()
		if c.stored.Size() == 0 || c.elems < 0 || c.elems > math.MaxInt32 {
			return robocache.Unsupported("loader", robocache.Where{"stream": f.Key}, "%s rows of %v in batches", f.DType, f.Shape)
		}
		c.cast(f.DType)
		switch {
		case cfg.Compat == LeRobot:
			c.cast(referenceDType(f.DType))
		case cfg.DType == DTypeFloat32 && f.DType == robocache.Float64 && (!c.bookkeeping() || src.ds.Info().Format == "lerobot"):
			// A time since the Unix epoch has steps of 128 s in float32. LeRobot's count from the episode's start.
			c.cast(robocache.Float32)
		}
	}
	src.add(c)
	if c.span != nil && src.free(f.Key+timesSuffix) {
		when := &column{
			key: f.Key + timesSuffix, feature: f, value: value{stored: robocache.Int64, elems: 1, rowBytes: 8},
			sampling: sampling{steps: c.steps, axis: c.axis, span: c.span, time: new(timing)},
		}
		when.kind = &timesColumn{column: when}
		when.cast(robocache.Int64)
		src.add(when)
	}
	return nil
}

// referenceDType is what LeRobot's own items have.
func referenceDType(d robocache.DType) robocache.DType {
	switch {
	case d.Float():
		return robocache.Float32
	case d.Integer():
		return robocache.Int64
	}
	return d
}

// free says that no feature has a key.
func (src *source) free(key string) bool { return !slices.Contains(src.known, key) }

func (src *source) keys() []string {
	var out []string
	for _, c := range src.columns {
		out = append(out, c.key)
	}
	return out
}
