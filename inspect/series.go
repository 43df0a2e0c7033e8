package inspect

import (
	"context"
	"math"
	"slices"
	"sort"

	"github.com/goatnote-inc/robocache"
)

const (
	MaxChannels = 64        // of a stream in one Series
	maxPoints   = 4000      // rows of a Series that are given as they are
	readBudget  = 512 << 20 // what one Series reads of the dataset
	blockBytes  = 4 << 20   // read at once
)

// Series is rows of a numeric stream as points to draw. Rows of more points than fit are thinned to
// the first, lowest, highest and last value in each column of pixels: no value that is higher or
// lower than its neighbours is lost. A gap, and a value that is missing or not finite, is NaN.
type Series struct {
	Key     string      `json:"key"`
	From    int         `json:"from"`     // the first channel
	Columns int         `json:"channels"` // how many of them
	Of      int         `json:"of"`
	Rows    [2]int      `json:"rows"` // that were looked at
	Thinned bool        `json:"thinned"`
	Missing int         `json:"missing"` // values that are masked or not finite
	Points  int         `json:"points"`
	X       []float64   `json:"-"` // nanoseconds from Range.Start
	Y       [][]float64 `json:"-"` // of each channel
}

// Range says which part of a stream is wanted: times from Start, which is not before the first
// channel's. The zero Pixels are 1000.
type Range struct {
	Start    int64
	From, To int64 // ns from Start; math.MinInt64, math.MaxInt64: all
	Channel  int   // the first of MaxChannels
	Pixels   int   // columns that there are
}

// Whole is the range of a whole episode.
func Whole(start int64) Range { return Range{Start: start, From: math.MinInt64, To: math.MaxInt64} }

// Curves says whether a stream is numbers of one width.
func Curves(f *robocache.Feature) bool {
	return f.Kind == robocache.KindNumeric && !f.Ragged() && f.RowBytes() > 0
}

// SeriesOf reads and thins the rows between two times, and one row beyond on each side.
func SeriesOf(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	l *Timeline,
	e int,
	r Range,
) (_ *Series, err error) {
	if !Curves(f) {
		return nil, robocache.Unsupported(
			"inspect",
			robocache.Where{"stream": f.Key},
			"a stream of kind %s has no curves",
			string(f.Kind),
		)
	}
	if r.Pixels == 0 {
		r.Pixels = 1000
	}
	s := &Series{
		Key:     f.Key,
		Of:      f.Elements(),
		From:    r.Channel,
		Columns: min(f.Elements()-r.Channel, MaxChannels),
	}
	at := func(t int64) int64 { // without overflow
		if t == math.MinInt64 || t == math.MaxInt64 {
			return t
		}
		return r.Start + t
	}
	lo := sort.Search(len(l.Times), func(i int) bool { return l.Times[i] >= at(r.From) })
	hi := sort.Search(len(l.Times), func(i int) bool { return l.Times[i] > at(r.To) })
	lo, hi = max(0, lo-1), min(len(l.Times), hi+1)
	s.Rows = [2]int{lo, hi}
	s.Y = make([][]float64, s.Columns)
	if lo >= hi {
		return s, nil
	}
	if int64(hi-lo)*int64(f.RowBytes()) > readBudget {
		return nil, robocache.ResourceLimit("inspect", robocache.Where{"stream": f.Key}, "so many rows are not read at once").
			WithHint("zoom in")
	}
	s.Thinned = hi-lo > max(maxPoints, 4*r.Pixels)
	t := &thinner{s: s, gap: l.LongestStep(f), cols: make([]column, s.Columns)}
	first, span := l.Times[lo], l.Times[hi-1]-l.Times[lo]+1
	d := f.Elements()
	if err := EachRow(ctx, ds, f, e, lo, hi, func(row int, values []float64) {
		pixel := row
		if s.Thinned {
			pixel = int(float64(l.Times[row]-first) / float64(span) * float64(r.Pixels))
		}
		t.add(l.Times[row]-r.Start, pixel, values[s.From:min(d, s.From+s.Columns)])
	}); err != nil {
		return nil, err
	}
	t.flush()
	s.Points = len(s.X)
	return s, nil
}

// EachRow reads rows of a numeric stream, a block at a time. Values of a row that is masked are
// NaN.
func EachRow(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	e, from, to int,
	fn func(row int, values []float64),
) error {
	block, d := max(1, blockBytes/f.RowBytes()), f.Elements()
	buf := make([]byte, min(block, to-from)*f.RowBytes())
	var values []float64
	for k := from; k < to; k += block {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows := robocache.RowsOf(e, k, min(block, to-k))
		raw := buf[:len(rows)*f.RowBytes()]
		if err := ds.Gather(ctx, f.Key, rows, raw); err != nil {
			return err
		}
		valid, err := robocache.Validity(ctx, ds, f, rows)
		if err != nil {
			return err
		}
		values = robocache.Float64s(values[:0], f.DType, raw)
		for i := range rows {
			v := values[i*d : (i+1)*d]
			if valid != nil && valid[i] == 0 {
				for c := range v {
					v[c] = math.NaN()
				}
			}
			fn(k+i, v)
		}
	}
	return nil
}

// thinner makes the points of a Series: M4, the first, lowest, highest and last value a column of
// pixels.
type thinner struct {
	s           *Series
	gap         int64
	cols        []column
	pixel, rows int
	t0, t1      int64 // of the rows in the column
}

type column struct {
	first, low, high, last float64
	lowAt, highAt          int
	some, hole             bool
}

func (t *thinner) add(at int64, pixel int, values []float64) {
	if gap := at-t.t1 > t.gap; t.rows > 0 && (pixel != t.pixel || gap) {
		last := t.t1
		t.flush()
		if gap {
			t.point(float64(last+1), func(*column) float64 { return math.NaN() })
		}
	}
	if t.rows == 0 {
		t.pixel, t.t0 = pixel, at
	}
	for i, v := range values {
		c := &t.cols[i]
		switch {
		case v-v != 0:
			c.hole = true
			t.s.Missing++
			continue
		case !c.some:
			c.first, c.low, c.high, c.lowAt, c.highAt, c.some = v, v, v, t.rows, t.rows, true
		case v < c.low:
			c.low, c.lowAt = v, t.rows
		case v > c.high:
			c.high, c.highAt = v, t.rows
		}
		c.last = v
	}
	t.t1 = at
	t.rows++
}

func (t *thinner) point(x float64, value func(*column) float64) {
	t.s.X = append(t.s.X, x)
	for i := range t.cols {
		v := math.NaN()
		if t.cols[i].some {
			v = value(&t.cols[i])
		}
		t.s.Y[i] = append(t.s.Y[i], v)
	}
}

// flush puts a column of pixels into the series. Its points lie within the time of its rows, in
// their order.
func (t *thinner) flush() {
	if t.rows == 0 {
		return
	}
	extreme := func(early bool) func(c *column) float64 {
		return func(c *column) float64 {
			if (c.lowAt < c.highAt) == early {
				return c.low
			}
			return c.high
		}
	}
	x0, d := float64(t.t0), float64(t.t1-t.t0)
	t.point(x0, func(c *column) float64 { return c.first })
	if t.rows > 2 {
		t.point(x0+d/3, extreme(true))
		t.point(x0+2*d/3, extreme(false))
		if slices.ContainsFunc(t.cols, func(c column) bool { return c.hole }) {
			t.point(x0+5*d/6, func(c *column) float64 {
				if c.hole {
					return math.NaN()
				}
				return c.last
			})
		}
	}
	if t.rows > 1 {
		t.point(x0+d, func(c *column) float64 { return c.last })
	}
	clear(t.cols)
	t.rows = 0
}
