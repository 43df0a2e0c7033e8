package loader

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/video"
)

// column is one key of a batch: where its values come from, and where they go.
type column struct {
	key     string
	feature *robocache.Feature // nil for the task text
	source  origin
	steps   int  // T, 1 without a window
	axis    bool // the T axis is in the shape
	window  bool // delta_timestamps named it
	rows    int  // index of its window in layout.windows

	stored, out robocache.DType
	elems       int // of a row
	rowBytes    int // as stored
	outBytes    int // a row or picture in the tensor
	norm        *affine

	spec          video.Spec // pictures
	width, height int
	metres        bool

	number int // of the column
	entry  int // index in Batch.Tensors or Batch.Texts
	mask   int // index in Batch.Tensors of its is_pad; -1
	aligns *streamAlign
	raw    *wired // its batches are raw; nil: they are as the field says
}

// origin says where the values of a column come from.
type origin uint8

const (
	fromTable origin = iota
	fromText
	fromVideo
	fromStills
)

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
	texts   []int // columns of the texts, in order
}

type tensorPlan struct {
	key    string
	dtype  robocache.DType
	shape  []int // of a sample
	bytes  int   // a sample
	column int   // -1: a mask of column `of`
	of     int
}

const defaultTolerance = 1e-4

func newLayout(ctx context.Context, ds robocache.Dataset, cfg *Config, warn func(string)) (*layout, error) {
	info := ds.Info()
	l := &layout{}
	known := make([]string, 0, len(info.Features)+1)
	for i := range info.Features {
		known = append(known, info.Features[i].Key)
	}
	hasTask := info.Feature("task") == nil && (len(info.Tasks) > 0 || info.Feature("task_index") != nil)
	if hasTask {
		known = append(known, "task")
	}
	for _, k := range cfg.Keys {
		if !slices.Contains(known, k) {
			return nil, unknownKey("keys", k, known)
		}
	}
	wanted := func(k string) bool { return cfg.Keys == nil || slices.Contains(cfg.Keys, k) }
	for _, d := range cfg.Deltas {
		switch {
		case !slices.Contains(known, d.Key):
			return nil, unknownKey("delta_timestamps", d.Key, known)
		case !wanted(d.Key):
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "delta_timestamps names " + d.Key + ", which keys leaves out"}
		case len(d.Offsets) == 0:
			return nil, misuse("delta_timestamps", "at least one offset for "+d.Key, "none")
		}
	}
	l.windows = []window{{offsets: []int{0}, nanos: []int64{0}}}

	// Video first, then the table in the dataset's order: the order of the field's own items.
	for pass := range 2 {
		for i := range info.Features {
			f := &info.Features[i]
			if (f.Kind == robocache.KindVideo) != (pass == 0) || !wanted(f.Key) {
				continue
			}
			if f.Kind == robocache.KindPointCloud {
				if cfg.Keys != nil {
					return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Where: robocache.Where{"stream": f.Key}, Msg: "point clouds in batches"}
				}
				warn("point cloud " + f.Key + " is left out: batches hold no point clouds")
				continue
			}
			if err := l.add(f, cfg, info); err != nil {
				return nil, err
			}
		}
	}
	for _, d := range cfg.Deltas {
		l.addMask(d.Key)
	}
	if cfg.Align != nil {
		// On a timeline every value has a mask, window or not.
		for i := range l.columns {
			if l.columns[i].source != fromText && l.columns[i].mask < 0 {
				l.addMask(l.columns[i].key)
			}
		}
	}
	if hasTask && wanted("task") {
		if cfg.Deltas.of("task") != nil {
			return nil, textWindow("task")
		}
		l.columns = append(l.columns, column{key: "task", number: len(l.columns), source: fromText, steps: 1, out: robocache.String, mask: -1, entry: len(l.texts)})
		l.texts = append(l.texts, len(l.columns)-1)
		l.fields = append(l.fields, Field{Key: "task", DType: robocache.String, Shape: []int{}, Kind: robocache.KindText})
	}
	if len(l.fields) == 0 {
		return nil, misuse("keys", "at least one key", "none")
	}
	return l, nil
}

func unknownKey(option, key string, known []string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": key}, Msg: option + ": the dataset has no key " + key, Hint: nearest(key, known)}
}

func textWindow(key string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": key}, Msg: "delta_timestamps of a text"}
}

// add makes the column of a feature.
func (l *layout) add(f *robocache.Feature, cfg *Config, info *robocache.Info) error {
	c := column{key: f.Key, feature: f, steps: 1, mask: -1, stored: f.DType, out: f.DType}
	lerobot := cfg.Compat == "lerobot"
	if deltas := cfg.Deltas.of(f.Key); deltas != nil {
		if f.Kind == robocache.KindText || f.Kind == robocache.KindEvent {
			return textWindow(f.Key)
		}
		w, err := newWindow(deltas, cfg, info, f)
		if err != nil {
			return robocache.At(err, robocache.Where{"stream": f.Key})
		}
		c.rows = l.window(w)
		c.steps, c.window = len(deltas), true
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
		if err := c.picture(f, cfg); err != nil {
			return err
		}
		shape = []int{channels(c.spec.Pixel), c.height, c.width}
	default:
		c.elems, c.rowBytes = f.Elements(), f.RowBytes()
		if c.stored.Size() == 0 || c.elems < 0 || c.elems > math.MaxInt32 {
			return &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Where: robocache.Where{"stream": f.Key}, Msg: fmt.Sprintf("%s rows of %v in batches", f.DType, f.Shape)}
		}
		if lerobot {
			c.out = referenceDType(f.DType)
		}
		if !f.Scalar() {
			shape = slices.Clone(f.Shape)
		}
		c.outBytes = c.elems * c.out.Size()
	}
	if c.axis {
		shape = append([]int{c.steps}, shape...)
	}
	if shape == nil {
		shape = []int{}
	}
	c.entry = len(l.tensors)
	l.tensors = append(l.tensors, tensorPlan{key: f.Key, dtype: c.out, shape: shape, bytes: c.steps * c.outBytes, column: len(l.columns), of: -1})
	l.fields = append(l.fields, Field{Key: f.Key, DType: c.out, Shape: shape, Kind: f.Kind})
	c.number = len(l.columns)
	l.columns = append(l.columns, c)
	return nil
}

// picture settles what a decoded picture becomes. The size may still be 0: then the first picture says it (probe).
func (c *column) picture(f *robocache.Feature, cfg *Config) error {
	c.height, c.width = f.Height, f.Width
	c.spec.ChannelsFirst = true
	if len(cfg.ImageSize) == 2 {
		c.height, c.width = cfg.ImageSize[0], cfg.ImageSize[1]
		c.spec.Height, c.spec.Width = c.height, c.width
	}
	switch {
	case f.Depth != nil && cfg.DepthUnit != "code":
		c.spec.Pixel, c.spec.Depth, c.metres = video.DepthMM, f.Depth, cfg.DepthUnit == "m"
		if c.metres && f.Kind == robocache.KindVideo {
			// Codes are finer than millimetres near the camera: they go to metres in one step.
			c.spec.Pixel, c.metres = video.DepthM, false
		}
		c.out = robocache.Float32
	case f.Depth != nil || f.DType == robocache.Uint16:
		c.spec.Pixel = video.Gray16
		c.out = robocache.Uint16
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

// resize takes over a picture size that was found after the layout was made.
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

func newWindow(deltas []float64, cfg *Config, info *robocache.Info, f *robocache.Feature) (window, error) {
	w := window{nanos: make([]int64, len(deltas))}
	for i, d := range deltas {
		if math.IsNaN(d) || math.Abs(d) > 4e9 {
			return w, misuse("delta_timestamps", "seconds", fmt.Sprint(d))
		}
		w.nanos[i] = int64(math.RoundToEven(d * 1e9))
	}
	if cfg.Align != nil {
		return w, nil // offsets on a timeline need not be multiples of a frame
	}
	fps := info.FPS
	if fps.Zero() {
		fps = f.FPS
	}
	tolerance := defaultTolerance
	switch {
	case cfg.OffsetTolerance != nil:
		tolerance = *cfg.OffsetTolerance
	case cfg.Tolerance != nil:
		tolerance = *cfg.Tolerance
	}
	var err error
	w.offsets, err = align.Offsets(deltas, fps, tolerance)
	return w, err
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
		if c.key != key || c.source == fromText {
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

func (l *layout) keys() []string {
	var out []string
	for i := range l.columns {
		out = append(out, l.columns[i].key)
	}
	return out
}

func (l *layout) has(key string) bool { return slices.Contains(l.keys(), key) }
