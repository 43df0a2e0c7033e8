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
	maxPoints   = 4000      // rows of a Series up to which it is not thinned
	readBudget  = 512 << 20 // bytes that one Series may read from the dataset
	blockBytes  = 4 << 20   // bytes read at once
)

// Series holds rows of a numeric stream as points to draw. If there are too many rows, each column
// of pixels keeps its first, lowest, highest and last value. Thus no local minimum or maximum is
// lost. A gap, and a value that is missing or not finite, is NaN.
type Series struct {
	Key     string      `json:"key"`
	From    int         `json:"from"`     // the first channel
	Columns int         `json:"channels"` // number of channels
	Of      int         `json:"of"`
	Rows    [2]int      `json:"rows"` // range of rows that was read
	Thinned bool        `json:"thinned"`
	Missing int         `json:"missing"` // number of values that are masked or not finite
	Points  int         `json:"points"`
	X       []float64   `json:"-"` // nanoseconds from Range.Start
	Y       [][]float64 `json:"-"` // values of each channel
}

// Range selects a part of a stream. Times count from Start. If Pixels is 0, 1000 is used.
type Range struct {
	Start    int64
	From, To int64 // ns from Start; math.MinInt64 and math.MaxInt64 select everything
	Channel  int   // first of up to MaxChannels channels
	Pixels   int   // number of pixel columns
}

// Whole returns the range of a whole episode.
func Whole(start int64) Range { return Range{Start: start, From: math.MinInt64, To: math.MaxInt64} }

// Curves reports whether a stream has numeric rows of constant width.
func Curves(f *robocache.Feature) bool {
	return f.Kind == robocache.KindNumeric && !f.Ragged() && f.RowBytes() > 0
}

// SeriesOf reads the rows in a range, and one row more on each side, and thins them.
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
	at := func(t int64) int64 { // avoids overflow
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
		return nil, robocache.ResourceLimit(
			"inspect",
			robocache.Where{"stream": f.Key},
			"so many rows are not read at once",
		).WithHint("zoom in")
	}
	s.Thinned = hi-lo > max(maxPoints, 4*r.Pixels)
	t := &thinner{series: s, gap: l.LongestStep(f), columns: make([]pixelColumn, s.Columns)}
	first, span := l.Times[lo], l.Times[hi-1]-l.Times[lo]+1
	d := f.Elements()
	if err := EachRow(ctx, ds, f, e, lo, hi, func(row int, values []float64) {
		pixel := row
		if s.Thinned {
			pixel = int(float64(l.Times[row]-first) / float64(span) * float64(r.Pixels))
		}
		t.addRow(l.Times[row]-r.Start, pixel, values[s.From:min(d, s.From+s.Columns)])
	}); err != nil {
		return nil, err
	}
	t.flushColumn()
	s.Points = len(s.X)
	return s, nil
}

// EachRow reads rows of a numeric stream block by block and calls fn for each. The values of a
// masked row are NaN. values is valid until the next call.
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

// thinner makes the points of a Series with the M4 algorithm: each column of pixels keeps the
// first, lowest, highest and last value.
type thinner struct {
	series              *Series
	gap                 int64
	columns             []pixelColumn
	pixel, rows         int
	firstTime, lastTime int64 // times of the first and last row in the column
}

type pixelColumn struct {
	first, low, high, last float64
	lowAt, highAt          int
	hasValue, hasHole      bool
}

func (t *thinner) addRow(at int64, pixel int, values []float64) {
	if gap := at-t.lastTime > t.gap; t.rows > 0 && (pixel != t.pixel || gap) {
		last := t.lastTime
		t.flushColumn()
		if gap {
			t.addPoint(float64(last+1), func(*pixelColumn) float64 { return math.NaN() })
		}
	}
	if t.rows == 0 {
		t.pixel, t.firstTime = pixel, at
	}
	for i, v := range values {
		c := &t.columns[i]
		switch {
		case v-v != 0:
			c.hasHole = true
			t.series.Missing++
			continue
		case !c.hasValue:
			c.first, c.low, c.high, c.lowAt, c.highAt, c.hasValue = v, v, v, t.rows, t.rows, true
		case v < c.low:
			c.low, c.lowAt = v, t.rows
		case v > c.high:
			c.high, c.highAt = v, t.rows
		}
		c.last = v
	}
	t.lastTime = at
	t.rows++
}

func (t *thinner) addPoint(x float64, value func(*pixelColumn) float64) {
	t.series.X = append(t.series.X, x)
	for i := range t.columns {
		v := math.NaN()
		if t.columns[i].hasValue {
			v = value(&t.columns[i])
		}
		t.series.Y[i] = append(t.series.Y[i], v)
	}
}

// flushColumn appends the points of a pixel column to the series. The points keep their order and
// lie within the time of the column's rows.
func (t *thinner) flushColumn() {
	if t.rows == 0 {
		return
	}
	extreme := func(early bool) func(c *pixelColumn) float64 {
		return func(c *pixelColumn) float64 {
			if (c.lowAt < c.highAt) == early {
				return c.low
			}
			return c.high
		}
	}
	x0, d := float64(t.firstTime), float64(t.lastTime-t.firstTime)
	t.addPoint(x0, func(c *pixelColumn) float64 { return c.first })
	if t.rows > 2 {
		t.addPoint(x0+d/3, extreme(true))
		t.addPoint(x0+2*d/3, extreme(false))
		if slices.ContainsFunc(t.columns, func(c pixelColumn) bool { return c.hasHole }) {
			t.addPoint(x0+5*d/6, func(c *pixelColumn) float64 {
				if c.hasHole {
					return math.NaN()
				}
				return c.last
			})
		}
	}
	if t.rows > 1 {
		t.addPoint(x0+d, func(c *pixelColumn) float64 { return c.last })
	}
	clear(t.columns)
	t.rows = 0
}
