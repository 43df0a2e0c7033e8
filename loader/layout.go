package loader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/video"
)

// column is one key of a batch: where its values come from, and where they go.
type column struct {
	key     string
	feature *robocache.Feature // nil for the task text and the episode's id
	source  origin
	steps   int  // T, 1 without a window
	axis    bool // the T axis is in the shape
	window  bool // delta_timestamps or windows named it
	rows    int  // index of its window in layout.windows
	timed   bool // it goes by time: on another clock than the samples, or with a window in time
	native  bool // of a window in which nothing is computed unless a mode is chosen
	ragged  bool // its tensor holds what there is, and `<key>_lengths` says how much of each sample
	span    [2]int64
	spans   bool // it holds all samples of a span
	when    bool // … of which it gives the times
	spread  bool // it holds all samples of a span too, in as many places as the fullest span needs

	stored, out robocache.DType
	elems       int // of a row
	rowBytes    int // as stored
	outBytes    int // a row or frame in the tensor
	norm        *affine

	spec          video.Spec // frames
	resize        Resize
	aug           *imageAug // of colour frames; their width and height are those before it
	mirror        *mirror   // what a flip of the images does to numbers
	noise         float32
	unit          string // of the values as they are given
	width, height int

	number int // of the column
	entry  int // index in Batch.Tensors or Batch.Texts
	count  int // index in Batch.Tensors of its lengths, where it is ragged
	mask   int // index in Batch.Tensors of its is_pad; -1
	aligns *streamAlign
	shared []int  // columns whose values are made with this one's, by the same plan
	leader int    // whose plan makes this one's values; itself
	raw    *wired // its batches are raw; nil: they are as the field says
}

// origin says where the values of a column come from.
type origin uint8

const (
	fromTable origin = iota
	fromText
	fromVideo
	fromStills
	fromRagged
	fromSample
)

// EpisodeID is a key that any dataset has where it is asked for: the position of the sample's episode, as text.
const EpisodeID = "episode_id"

// window is a set of row offsets that several columns may share.
type window struct {
	offsets []int
	nanos   []int64
}

// layout is the plan of a batch: what comes in what order, and how many bytes a sample takes.
type layout struct {
	fields  []Field
	columns []column
	windows []window
	tensors []tensorPlan
	texts   []int    // columns of the texts, in order
	known   []string // keys of the dataset
	left    []NotDelivered
}

type tensorPlan struct {
	key    string
	dtype  robocache.DType
	shape  []int // of a sample; of a ragged one -1 and the shape of an entry
	bytes  int   // a sample; 0 of a ragged one
	column int   // -1: a mask of column `of`
	of     int
	ragged bool
}

const defaultTolerance = 1e-4

func newLayout(ctx context.Context, ds robocache.Dataset, cfg *Config, on *line, warn func(string)) (*layout, error) {
	info := ds.Info()
	l := &layout{}
	known := make([]string, 0, len(info.Features)+1)
	for i := range info.Features {
		known = append(known, info.Features[i].Key)
	}
	l.known = known
	hasTask := info.Feature("task") == nil && (len(info.Tasks) > 0 || info.Feature("task_index") != nil)
	if hasTask {
		known = append(known, "task")
	}
	hasID := info.Feature(EpisodeID) == nil && slices.Contains(cfg.Keys, EpisodeID)
	if hasID {
		known = append(known, EpisodeID)
	}
	for _, k := range cfg.Keys {
		if !slices.Contains(known, k) {
			return nil, lacks(info, "keys", k, known)
		}
	}
	for i := range info.Findings {
		f := &info.Findings[i]
		if cfg.Keys == nil && f.Severity == robocache.SeverityError && f.NotDelivered != "" && !slices.Contains(known, f.NotDelivered) {
			var e *robocache.Error
			err := info.Withheld(f.NotDelivered)
			if errors.As(err, &e) {
				e.Hint = "keys=[…] names what is wanted and goes on without it; or: " + e.Hint
			}
			return nil, err
		}
	}
	wanted := func(k string) bool { return cfg.Keys == nil || slices.Contains(cfg.Keys, k) }
	for _, d := range cfg.Deltas {
		switch {
		case !slices.Contains(known, d.Key):
			return nil, lacks(info, "delta_timestamps", d.Key, known)
		case !wanted(d.Key):
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "delta_timestamps names " + d.Key + ", which keys leaves out"}
		case len(d.Offsets) == 0:
			return nil, misuse("delta_timestamps", "at least one offset for "+d.Key, "none")
		}
	}
	if err := cfg.checkIndices(info, known, wanted); err != nil {
		return nil, err
	}
	if err := cfg.checkWindows(info, known, wanted); err != nil {
		return nil, err
	}
	l.windows = []window{{offsets: []int{0}, nanos: []int64{0}}}

	// Video first, then the table in the dataset's order: the order of the field's own items.
	for pass := range 2 {
		for i := range info.Features {
			f := &info.Features[i]
			if (f.Kind == robocache.KindVideo) != (pass == 0) || !wanted(f.Key) {
				continue
			}
			if f.Ragged() && !hasRagged(ds) || f.Kind == robocache.KindPointCloud && !f.Ragged() {
				if cfg.Keys != nil {
					return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Where: robocache.Where{"stream": f.Key}, Msg: "the format " + info.Format + " gives no rows of varying length"}
				}
				warn(f.Key + " is left out: the format " + info.Format + " gives no rows of varying length")
				l.left = append(l.left, NotDelivered{Key: f.Key, Reason: "the format " + info.Format + " gives no rows of varying length"})
				continue
			}
			if err := l.add(f, cfg, info, on); err != nil {
				return nil, err
			}
		}
	}
	for _, d := range cfg.Deltas {
		l.addMask(d.Key)
	}
	for _, x := range cfg.Indices {
		l.addMask(x.Key)
	}
	for i := range cfg.Windows {
		l.addMask(cfg.Windows[i].Key)
	}
	for i := range l.columns {
		// Off the rows of the line every value has a mask, window or not; and so have rows that may hold none.
		if c := &l.columns[i]; (c.timed || c.feature.Masked) && !c.when {
			l.addMask(c.key)
		}
	}
	if hasTask && wanted("task") {
		if cfg.Deltas.Of("task") != nil || cfg.Indices.Of("task") != nil || cfg.Windows.Of("task") != nil {
			return nil, textWindow("task")
		}
		timed, err := on.timed(nil, cfg)
		if err != nil {
			return nil, err
		}
		l.addText(column{key: "task", timed: timed, source: fromText})
	}
	if hasID {
		if cfg.Deltas.Of(EpisodeID) != nil || cfg.Indices.Of(EpisodeID) != nil || cfg.Windows.Of(EpisodeID) != nil {
			return nil, textWindow(EpisodeID)
		}
		l.addText(column{key: EpisodeID, source: fromSample})
	}
	if len(l.fields) == 0 {
		return nil, misuse("keys", "at least one key", "none")
	}
	return l, nil
}

// addText makes a column of texts that is no feature.
func (l *layout) addText(c column) {
	c.number, c.leader, c.entry = len(l.columns), len(l.columns), len(l.texts)
	c.steps, c.mask, c.out = 1, -1, robocache.String
	l.columns = append(l.columns, c)
	l.texts = append(l.texts, c.number)
	l.fields = append(l.fields, Field{Key: c.key, DType: robocache.String, Shape: []int{}, Kind: robocache.KindText})
}

// lacks is the error of a key that a dataset does not give: the reason, where it declares one.
func lacks(info *robocache.Info, option, key string, known []string) error {
	return cmp.Or(info.Withheld(key), unknownKey(option, key, known))
}

func unknownKey(option, key string, known []string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": key}, Msg: option + ": the dataset has no key " + key, Hint: nearest(key, known)}
}

func textWindow(key string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": key}, Msg: "a window of a text", Hint: "texts are those of the sample's own time"}
}

// add makes the column of a feature.
func (l *layout) add(f *robocache.Feature, cfg *Config, info *robocache.Info, on *line) error {
	c := column{key: f.Key, feature: f, leader: len(l.columns), steps: 1, mask: -1, stored: f.DType, out: f.DType, unit: f.Unit}
	lerobot := cfg.Compat == "lerobot"
	var err error
	if c.timed, err = on.timed(f, cfg); err != nil {
		return err
	}
	if err := c.nativeWindow(l, cfg); err != nil {
		return robocache.At(err, robocache.Where{"stream": f.Key})
	}
	if cfg.Deltas.Of(f.Key) != nil || cfg.Indices.Of(f.Key) != nil {
		if f.Kind == robocache.KindText || f.Kind == robocache.KindEvent {
			return textWindow(f.Key)
		}
		w, err := newWindow(cfg, info, f, c.timed)
		if err != nil {
			return robocache.At(err, robocache.Where{"stream": f.Key})
		}
		c.rows = l.window(w)
		c.steps, c.window = max(len(w.offsets), len(w.nanos)), true
		// The reference squeezes one-frame windows of video, and of nothing else.
		c.axis = !(lerobot && f.Kind == robocache.KindVideo && c.steps == 1)
	}
	var shape []int
	switch f.Kind {
	case robocache.KindText, robocache.KindEvent:
		c.source = fromText
		c.out = robocache.String
		if f.Kind == robocache.KindEvent {
			c.out = robocache.JSON
		}
		c.entry = len(l.texts)
		l.texts = append(l.texts, len(l.columns))
		l.fields = append(l.fields, Field{Key: f.Key, DType: c.out, Shape: []int{}, Kind: f.Kind})
		c.number = len(l.columns)
		l.columns = append(l.columns, c)
		return nil
	case robocache.KindVideo, robocache.KindImage:
		c.source = fromVideo
		if f.Kind == robocache.KindImage {
			c.source = fromStills
		}
		if err := c.pic(f, cfg); err != nil {
			return err
		}
		shape = []int{channels(c.spec.Pixel), c.height, c.width}
	default:
		if c.ragged = c.spans || f.Ragged(); f.Ragged() {
			c.source = fromRagged
		}
		c.elems = f.Elements()
		c.rowBytes = c.elems * f.DType.Size()
		if c.stored.Size() == 0 || c.elems < 0 || c.elems > math.MaxInt32 {
			return &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Where: robocache.Where{"stream": f.Key}, Msg: fmt.Sprintf("%s rows of %v in batches", f.DType, f.Shape)}
		}
		if lerobot {
			c.out = referenceDType(f.DType)
		}
		switch {
		case c.source == fromRagged:
			shape = slices.Clone(f.Shape[1:])
		case !f.Scalar():
			shape = slices.Clone(f.Shape)
		}
		c.outBytes = c.elems * c.out.Size()
	}
	if c.ragged {
		l.addRagged(c, shape)
		if c.spread {
			l.addSpread(c)
		}
		return nil
	}
	if c.axis {
		shape = append([]int{c.steps}, shape...)
	}
	if shape == nil {
		shape = []int{}
	}
	c.entry = len(l.tensors)
	l.tensors = append(l.tensors, tensorPlan{key: f.Key, dtype: c.out, shape: shape, bytes: c.steps * c.outBytes, column: len(l.columns), of: -1})
	l.fields = append(l.fields, Field{Key: f.Key, DType: c.out, Shape: shape, Kind: f.Kind, Unit: c.unit})
	c.number = len(l.columns)
	l.columns = append(l.columns, c)
	if c.spread {
		l.addSpread(c)
	}
	return nil
}

// depth is the kind of pixel that depth becomes, and its unit.
func (c *Config) depth() (video.Pixel, string) {
	if c.DepthUnit == "m" {
		return video.DepthM, "m"
	}
	return video.DepthMM, "mm"
}

// frame settles what a decoded frame becomes. The size may still be 0: then the first frame says it (probe).
func (c *column) pic(f *robocache.Feature, cfg *Config) error {
	c.height, c.width = f.Height, f.Width
	c.spec.ChannelsFirst, c.resize = true, cfg.ImageResize
	if len(cfg.ImageSize) == 2 {
		c.height, c.width = cfg.ImageSize[0], cfg.ImageSize[1]
		c.spec.Height, c.spec.Width = c.height, c.width
	}
	kept := f.DepthUnit()
	c.unit = f.Unit
	switch {
	case f.Depth != nil && cfg.DepthUnit != "code":
		c.spec.Pixel, c.unit = cfg.depth() // codes of video are finer than millimetres near the camera: they go to metres in one step
		c.spec.Depth, c.out = f.Depth, robocache.Float32
	case kept != "" && f.Depth == nil && (f.DType == robocache.Float32 || kept != cfg.DepthUnit && cfg.DepthUnit != "code"):
		c.spec.Pixel, c.unit = cfg.depth()
		c.spec.Depth, c.out = &robocache.Depth{Unit: kept}, robocache.Float32
	case f.Depth != nil || f.DType == robocache.Uint16:
		c.spec.Pixel = video.Gray16
		c.out = robocache.Uint16
		if f.Depth != nil && f.Kind == robocache.KindVideo {
			c.unit = "" // codes
		}
	case f.Kind == robocache.KindImage && f.DType == robocache.Float32 && f.Channels == 1: // of another unit, and so no depth: as it is kept
		c.spec.Pixel, c.spec.Depth = video.DepthM, &robocache.Depth{Unit: "m"}
		c.out = robocache.Float32
	case cfg.ImageDType == "float32", cfg.Compat == "lerobot" && f.Kind == robocache.KindImage: // the reference's return_uint8 is for video alone
		c.spec.Pixel = video.RGBFloat32
		c.out = robocache.Float32
	default:
		c.spec.Pixel = video.RGB8
		c.out = robocache.Uint8
	}
	c.sizeKnown()
	return nil
}

func (c *column) sizeKnown() {
	c.elems = channels(c.spec.Pixel) * c.height * c.width
	c.outBytes = c.elems * c.out.Size()
}

func channels(p video.Pixel) int {
	if p == video.RGB8 || p == video.RGBFloat32 {
		return 3
	}
	return 1
}

// resize takes over a frame size that was found after the layout was made.
func (l *layout) resize(i, height, width int) {
	c := &l.columns[i]
	c.height, c.width = height, width
	c.sizeKnown()
	t := &l.tensors[c.entry]
	n := len(t.shape)
	t.shape[n-2], t.shape[n-1] = height, width // shared with the field
	t.bytes = c.steps * c.outBytes
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

func newWindow(cfg *Config, info *robocache.Info, f *robocache.Feature, timed bool) (window, error) {
	if rows := cfg.Indices.Of(f.Key); rows != nil {
		return rowWindow(rows, cfg, timed)
	}
	deltas := cfg.Deltas.Of(f.Key)
	nanos, err := options.Nanos(deltas, "delta_timestamps")
	w := window{nanos: nanos}
	if err != nil || timed {
		return w, err // offsets in time need not be multiples of a frame
	}
	fps := info.FPS
	if fps.Zero() {
		fps = f.FPS
	}
	if fps.Zero() {
		return w, robocache.NoClock("loader", nil, "delta_timestamps are in seconds")
	}
	tolerance := defaultTolerance
	switch {
	case cfg.OffsetTolerance != nil:
		tolerance = *cfg.OffsetTolerance
	case cfg.Tolerance != nil:
		tolerance = *cfg.Tolerance
	}
	w.offsets, err = align.Offsets(deltas, fps, tolerance)
	return w, err
}

// rowWindow is a window in rows: of the line that the samples lie on, be it a stream's own or a timeline.
func rowWindow(rows []int, cfg *Config, timed bool) (w window, err error) {
	switch {
	case !timed:
		w.offsets = rows
	case cfg.Align == nil || cfg.Align.HZ.Zero():
		return w, &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "delta_indices of a stream whose rows are not the samples'", Hint: "anchor= makes its rows the samples; or give delta_timestamps= or windows= in seconds, or hz="}
	default:
		for _, n := range rows {
			w.nanos = append(w.nanos, cfg.Align.HZ.Nanos(int64(n)))
		}
	}
	return w, nil
}

// window finds or adds a set of offsets.
func (l *layout) window(w window) int {
	for i := range l.windows {
		if slices.Equal(l.windows[i].offsets, w.offsets) && slices.Equal(l.windows[i].nanos, w.nanos) {
			return i
		}
	}
	l.windows = append(l.windows, w)
	return len(l.windows) - 1
}

// addMask makes `<key>_is_pad`.
func (l *layout) addMask(key string) {
	for i := range l.columns {
		c := &l.columns[i]
		if c.key != key || c.source == fromText || c.spans || c.mask >= 0 {
			continue
		}
		c.mask = len(l.tensors)
		shape := []int{}
		if c.window { // also where a video window of one step was squeezed
			shape = []int{c.steps}
		}
		l.tensors = append(l.tensors, tensorPlan{key: key + "_is_pad", dtype: robocache.Bool, shape: shape, bytes: c.steps, column: -1, of: i})
		l.fields = append(l.fields, Field{Key: key + "_is_pad", DType: robocache.Bool, Shape: shape, Kind: robocache.KindNumeric, Mask: true})
	}
}

// free says that no feature has a key.
func (l *layout) free(key string) bool { return !slices.Contains(l.known, key) }

func (l *layout) keys() []string {
	var out []string
	for i := range l.columns {
		out = append(out, l.columns[i].key)
	}
	return out
}

func (l *layout) has(key string) bool { return slices.Contains(l.keys(), key) }
