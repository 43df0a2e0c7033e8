package loader

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/video"
)

// column is one key of a batch: where its values come from, and what becomes of them.
type column struct {
	src     *source
	key     string
	feature *robocache.Feature // nil for the task text and the episode's id
	kind    kind
	number  int       // among the source's columns
	steps   int       // T, 1 without a window
	axis    []int     // the T axis: {steps} with a window
	window  int       // index of its rows in source.windows
	span    *[2]int64 // it holds all samples of this span, in ns after the sample
	time    *timing   // nil: it goes by the rows of the timebase

	stored, out robocache.DType
	elems       int    // of a row
	rowBytes    int    // as stored
	outBytes    int    // a row or frame in the tensor
	unit        string // of the values as they are given
	norm        *affine
	mirror      *mirror // what a flip of the images does to numbers
	noise       float32

	spec          video.Spec // of frames
	resize        Resize
	files         frames.Files
	device        video.DeviceMemory // that its frames are made on; nil: the host
	aug           *imageAug          // of colour frames; their width and height are those before it
	width, height int

	entry  int // index in Batch.Tensors or Batch.Texts
	count  int // index in Batch.Tensors of its lengths; -1
	mask   int // index in Batch.Tensors of its is_pad; -1
	leader *column
	shared []*column // whose values are made with this one's, by the same plan
	raw    *deviceOp // its batches are raw; nil: they are as the field says
}

// kind is what a column is made of.
type kind interface {
	// waits is how many things a batch waits for, of a part of n samples.
	waits(c *column, n int) int
}

// A filler writes a column's part of a batch, as one of the things that the batch waits for. What no filler brings comes otherwise: frames through the
// store of frames (worker.locate), ragged columns in one job a batch for all its sources (worker.ragged).
type filler interface {
	fill(w *worker, p *part, c *column) error
}

// The kinds of columns.
type (
	table     struct{} // rows of numbers
	text      struct{} // texts of the dataset
	episodeID struct{} // the number of the sample's episode, as text
	number    struct{} // what rows are counted by, where the dataset has no column of it (generated)
	images    struct{ still bool }
	cloud     struct{} // rows of varying length
	span      struct{} // all rows of a span, one after the other
	times     struct{} // when the samples of another column's span were
)

func (table) waits(c *column, _ int) int  { return int(flag(c.leader == c)) } // its leader brings it
func (text) waits(*column, int) int       { return 1 }
func (episodeID) waits(*column, int) int  { return 1 }
func (number) waits(*column, int) int     { return 1 }
func (images) waits(c *column, n int) int { return n * c.steps }
func (cloud) waits(*column, int) int      { return 0 }
func (span) waits(*column, int) int       { return 0 }
func (times) waits(c *column, _ int) int  { return int(flag(!c.ragged())) }

func (table) fill(w *worker, p *part, c *column) error     { return w.gather(p, c) }
func (text) fill(w *worker, p *part, c *column) error      { return w.text(p, c) }
func (episodeID) fill(w *worker, p *part, c *column) error { return w.episodeIDs(p, c) }
func (number) fill(w *worker, p *part, c *column) error    { return w.numbers(p, c) }
func (times) fill(w *worker, p *part, c *column) error     { return w.placedTimes(p, c) }

// is says that a column is of a kind.
func is[K kind](c *column) bool {
	_, ok := c.kind.(K)
	return ok
}

func (c *column) isVideo() bool { return c.kind == images{still: false} }

// numbers says that the column's rows are numbers, a point cloud's too, and no frames.
func (c *column) numbers() bool { return is[table](c) || is[span](c) || is[cloud](c) || is[times](c) }

// listed says that the column is of a stream of plain numbers.
func (c *column) listed() bool { return is[table](c) || is[span](c) }

// ragged says that its tensor holds what there is, and `<key>_lengths` how much of each sample.
func (c *column) ragged() bool { return is[cloud](c) || is[span](c) || is[times](c) && c.axis == nil }

// given is the dtype that the user gets.
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
				src.a.warn(f.Key + " is left out: " + reason)
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
		case cfg.windowed(c.key) && is[number](c):
			return robocache.Misuse("loader", robocache.Where{"stream": c.key}, "a window of a number of the sample").
				WithHint("it is that of the sample's own time")
		case cfg.windowed(c.key):
			return textWindow(c.key)
		case !is[number](c):
			c.out = robocache.String
		}
		if is[text](c) {
			var err error
			if c.time, err = src.timebase.timing(nil, cfg); err != nil {
				return err
			}
		}
		src.add(c)
	}
	if len(src.columns) == 0 {
		return misuse("keys", "at least one key", "none")
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
				e.Hint = "keys=[…] names what is wanted and goes on without it; or: " + e.Hint
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
		WithHint("%s", nearest(key, known))
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
	c.src, c.leader, c.number, c.mask, c.count, c.steps = src, c, len(src.columns), -1, -1, max(c.steps, 1)
	src.columns = append(src.columns, c)
}

// addFeature makes the column of a feature, and the one that says when the samples of its span were.
func (src *source) addFeature(f *robocache.Feature) (err error) {
	cfg := &src.cfg
	c := &column{key: f.Key, feature: f, steps: 1, stored: f.DType, out: f.DType, unit: f.Unit}
	if c.time, err = src.timebase.timing(f, cfg); err != nil {
		return err
	}
	if f.Kind == robocache.KindText || f.Kind == robocache.KindEvent {
		if cfg.windowed(f.Key) {
			return textWindow(f.Key)
		}
		c.kind, c.out = text{}, robocache.String
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
		c.kind = images{still: f.Kind == robocache.KindImage}
		c.setFrame(cfg)
	case f.Ragged():
		c.kind = cloud{}
	case c.span != nil:
		c.kind = span{}
	default:
		c.kind = table{}
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
		when := &column{key: f.Key + timesSuffix, feature: f, kind: times{}, steps: c.steps, axis: c.axis, span: c.span, time: new(timing), stored: robocache.Int64, elems: 1, rowBytes: 8}
		when.cast(robocache.Int64)
		src.add(when)
	}
	return nil
}

// cast chooses the dtype of the tensor.
func (c *column) cast(to robocache.DType) { c.out, c.outBytes = to, c.elems*to.Size() }

// setFrame settles what a decoded frame becomes. The size may still be 0: then the first frame says it (probe).
func (c *column) setFrame(cfg *Config) {
	f, kept := c.feature, c.feature.DepthUnit()
	c.height, c.width = f.Height, f.Width
	c.spec.ChannelsFirst, c.resize = true, cfg.ImageResize
	if len(cfg.ImageSize) == 2 {
		c.height, c.width = cfg.ImageSize[0], cfg.ImageSize[1]
		c.spec.Height, c.spec.Width = c.height, c.width
	}
	switch {
	case f.Depth != nil && cfg.DepthUnit != "code":
		c.depth(cfg, f.Depth) // codes of video are finer than millimetres near the camera: they go to metres in one step
	case kept != "" && f.Depth == nil && (f.DType == robocache.Float32 || kept != string(cfg.DepthUnit) && cfg.DepthUnit != "code"):
		c.depth(cfg, &robocache.Depth{Unit: kept})
	case f.Depth != nil || f.DType == robocache.Uint16:
		c.spec.Pixel, c.out = video.Gray16, robocache.Uint16
		if f.Depth != nil && c.isVideo() {
			c.unit = "" // codes
		}
	case !c.isVideo() && f.DType == robocache.Float32 && f.Channels == 1: // of another unit, and so no depth: as it is kept
		c.spec.Pixel, c.spec.Depth, c.out = video.DepthM, &robocache.Depth{Unit: "m"}, robocache.Float32
	case cfg.ImageDType == "float32", cfg.Compat == "lerobot" && !c.isVideo(): // the reference's return_uint8 is for video alone
		c.spec.Pixel, c.out = video.RGBFloat32, robocache.Float32
	default:
		c.spec.Pixel, c.out = video.RGB8, robocache.Uint8
	}
	c.resized(c.height, c.width)
}

// depth makes frames those of depth, in the unit that is asked for.
func (c *column) depth(cfg *Config, d *robocache.Depth) {
	c.spec.Pixel, c.unit = video.DepthMM, "mm"
	if cfg.DepthUnit == "m" {
		c.spec.Pixel, c.unit = video.DepthM, "m"
	}
	c.spec.Depth, c.out = d, robocache.Float32
}

// resized sets the size of frames.
func (c *column) resized(height, width int) {
	c.height, c.width = height, width
	c.elems = channels(c.spec.Pixel) * height * width
	c.cast(c.out)
}

func channels(p video.Pixel) int {
	if p == video.RGB8 || p == video.RGBFloat32 {
		return 3
	}
	return 1
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

// column finds a column by its key; nil where there is none.
func (src *source) column(key string) *column {
	for _, c := range src.columns {
		if c.key == key {
			return c
		}
	}
	return nil
}
