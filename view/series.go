package view

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"sort"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// binary answers columns of numbers: the length of a JSON header (4 bytes, little-endian), the header padded to 8 bytes, and the columns.
func (q *request) binary(header any, columns ...[]float64) error {
	b, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for (4+len(b))%8 != 0 {
		b = append(b, ' ')
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(b)))
	out = append(out, b...)
	for _, c := range columns {
		for _, v := range c {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
		}
	}
	q.Header().Set("Content-Type", "application/octet-stream")
	_, err = q.Write(out)
	return err
}

// plotted is a series: columns of equal length, the times first.
type plotted struct {
	Key     string `json:"key"`
	From    int    `json:"from"`     // the first channel
	Columns int    `json:"channels"` // how many of them
	Of      int    `json:"of"`
	Rows    [2]int `json:"rows"` // that were looked at
	Thinned bool   `json:"thinned"`
	Missing int    `json:"missing"` // values that are masked or not finite
	Points  int    `json:"points"`
	x       []float64
	y       [][]float64
}

// series answers the rows of a numeric stream between two times, in at most so many columns of pixels.
func (s *Server) series(q *request) error {
	f, ctx := q.feature, q.Context()
	if f.Kind != robocache.KindNumeric || f.Ragged() || f.RowBytes() == 0 {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "view", Where: robocache.Where{"stream": f.Key}, Msg: "a stream of kind " + string(f.Kind) + " has no curves"}
	}
	all := guard.Must(q.set.timelines(ctx, q.e))
	l := guard.Must(q.set.timeline(ctx, q.e, f))
	from := q.number("from", math.MinInt64, math.MinInt64, math.MaxInt64)
	to := q.number("to", math.MaxInt64, math.MinInt64, math.MaxInt64)
	pixels := int(q.number("px", 1000, 1, 4000))
	p := &plotted{Key: f.Key, Of: f.Elements()}
	p.From = int(q.number("ch", 0, 0, int64(p.Of-1)))
	p.Columns = min(p.Of-p.From, maxChannels)
	guard.Check(p.fill(ctx, q.set.ds, f, l, q.e, all.start, from, to, pixels))
	p.Points = len(p.x)
	return q.binary(p, append([][]float64{p.x}, p.y...)...)
}

// fill reads and thins the rows between two times, and one row beyond on each side.
func (p *plotted) fill(ctx context.Context, ds robocache.Dataset, f *robocache.Feature, l *timeline, e int, start, from, to int64, pixels int) (err error) {
	defer guard.Into(&err)
	at := func(t int64) int64 { // without overflow
		if t == math.MinInt64 || t == math.MaxInt64 {
			return t
		}
		return start + t
	}
	lo := sort.Search(len(l.times), func(i int) bool { return l.times[i] >= at(from) })
	hi := sort.Search(len(l.times), func(i int) bool { return l.times[i] > at(to) })
	lo, hi = max(0, lo-1), min(len(l.times), hi+1)
	p.Rows = [2]int{lo, hi}
	p.y = make([][]float64, p.Columns)
	if lo >= hi {
		return nil
	}
	if int64(hi-lo)*int64(f.RowBytes()) > readBudget {
		return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "view", Where: robocache.Where{"stream": f.Key}, Msg: "so many rows are not read at once", Hint: "zoom in"}
	}
	p.Thinned = hi-lo > max(maxPoints, 4*pixels)
	t := &thinner{p: p, gap: longest(f, l), cols: make([]column, p.Columns)}
	first, span := l.times[lo], l.times[hi-1]-l.times[lo]+1
	block := max(1, blockBytes/f.RowBytes())
	buf := make([]byte, min(block, hi-lo)*f.RowBytes())
	var values []float64
	size, d := f.DType.Size(), f.Elements()
	for k := lo; k < hi; k += block {
		guard.Check(ctx.Err())
		rows := robocache.RowsOf(e, k, min(block, hi-k))
		raw := buf[:len(rows)*f.RowBytes()]
		guard.Check(ds.Gather(ctx, f.Key, rows, raw))
		valid := guard.Must(robocache.Validity(ctx, ds, f, rows))
		for i := range rows {
			row := raw[i*d*size:]
			values = robocache.Float64s(values[:0], f.DType, row[p.From*size:(p.From+p.Columns)*size])
			if valid != nil && valid[i] == 0 {
				for c := range values {
					values[c] = math.NaN()
				}
			}
			pixel := k + i
			if p.Thinned {
				pixel = int(float64(l.times[k+i]-first) / float64(span) * float64(pixels))
			}
			t.add(l.times[k+i]-start, pixel, values)
		}
	}
	t.flush()
	return nil
}

// thinner makes the points of a series: M4, the first, lowest, highest and last value a column of pixels.
type thinner struct {
	p           *plotted
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
	if t.rows > 0 && (pixel != t.pixel || at-t.t1 > t.gap) {
		gap := at-t.t1 > t.gap
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
			t.p.Missing++
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
	t.p.x = append(t.p.x, x)
	for i := range t.cols {
		v := math.NaN()
		if t.cols[i].some || t.rows == 0 {
			v = value(&t.cols[i])
		}
		t.p.y[i] = append(t.p.y[i], v)
	}
}

// flush puts a column of pixels into the series. Its points lie within the time of its rows, in their order.
func (t *thinner) flush() {
	if t.rows == 0 {
		return
	}
	x0, d := float64(t.t0), float64(t.t1-t.t0)
	t.point(x0, func(c *column) float64 { return c.first })
	if t.rows > 1 {
		if t.rows > 2 {
			t.point(x0+d/3, func(c *column) float64 {
				if c.lowAt < c.highAt {
					return c.low
				}
				return c.high
			})
			t.point(x0+2*d/3, func(c *column) float64 {
				if c.lowAt < c.highAt {
					return c.high
				}
				return c.low
			})
			if slices.ContainsFunc(t.cols, func(c column) bool { return c.hole }) {
				t.point(x0+5*d/6, func(c *column) float64 {
					if c.hole {
						return math.NaN()
					}
					return c.last
				})
			}
		}
		t.point(x0+d, func(c *column) float64 { return c.last })
	}
	clear(t.cols)
	t.rows = 0
}

// times answers the timestamps of a stream's rows.
func (s *Server) times(q *request) error {
	all := guard.Must(q.set.timelines(q.Context(), q.e))
	l := guard.Must(q.set.timeline(q.Context(), q.e, q.feature))
	out := make([]float64, len(l.times))
	for i, t := range l.times {
		out[i] = float64(t - all.start)
	}
	return q.binary(map[string]any{"key": q.feature.Key, "points": len(out)}, out)
}

// text answers rows of a text or an event stream: of equal ones that follow each other the first.
func (s *Server) text(q *request) error {
	ctx := q.Context()
	all := guard.Must(q.set.timelines(ctx, q.e))
	l := guard.Must(q.set.timeline(ctx, q.e, q.feature))
	type row struct {
		Row  int    `json:"row"`
		Time int64  `json:"t_ns"`
		Text string `json:"text"`
	}
	from := int(q.number("row", 0, 0, math.MaxInt32))
	out := struct {
		Rows []row `json:"rows"`
		Next int   `json:"next,omitempty"` // the row to go on from
	}{Rows: []row{}}
	for k := from; k < l.rows; k += 256 {
		texts := guard.Must(q.set.ds.Text(ctx, q.feature.Key, robocache.RowsOf(q.e, k, min(256, l.rows-k))))
		for i, text := range texts {
			if n := len(out.Rows); n == 0 || out.Rows[n-1].Text != text || q.feature.Kind == robocache.KindEvent && text != "" {
				out.Rows = append(out.Rows, row{k + i, l.times[k+i] - all.start, clip(text)})
			}
		}
		if len(out.Rows) > maxTexts {
			out.Next = k + 256
			break
		}
	}
	return q.json(out)
}

// clip bounds a text.
func clip(text string) string {
	if r := []rune(text); len(r) > 4000 {
		return string(r[:4000]) + "…"
	}
	return text
}

// value is the row of a stream that holds at a time.
type value struct {
	Key    string     `json:"key"`
	Row    int        `json:"row"`
	Time   int64      `json:"t_ns"`
	Values []*float64 `json:"values,omitempty"` // null: missing or not finite
	Text   *string    `json:"text,omitempty"`
	Valid  *bool      `json:"valid,omitempty"`
}

// at answers the last row of each stream at a time: what a person who looks back sees.
func (s *Server) at(q *request) error {
	ctx := q.Context()
	all := guard.Must(q.set.timelines(ctx, q.e))
	t := q.number("t", 0, math.MinInt64/2, math.MaxInt64/2)
	out := []value{}
	for i, l := range all.streams {
		f := &q.set.info.Features[i]
		n := sort.Search(len(l.times), func(k int) bool { return l.times[k] > all.start+t }) - 1
		if f.Latched && n < 0 && len(l.times) > 0 {
			n = 0
		}
		if n < 0 {
			continue
		}
		v := value{Key: f.Key, Row: n, Time: l.times[n] - all.start}
		row := []robocache.Row{{Episode: q.e, Index: n}}
		switch {
		case f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
			text := clip(guard.Must(q.set.ds.Text(ctx, f.Key, row))[0])
			v.Text = &text
		case f.Kind == robocache.KindNumeric && !f.Ragged() && f.RowBytes() > 0 && f.RowBytes() <= blockBytes:
			raw := make([]byte, f.RowBytes())
			guard.Check(q.set.ds.Gather(ctx, f.Key, row, raw))
			values := robocache.Float64s(nil, f.DType, raw[:min(f.Elements(), 4*maxChannels)*f.DType.Size()])
			for k := range values {
				v.Values = append(v.Values, nil)
				if x := values[k]; x-x == 0 {
					v.Values[k] = &values[k]
				}
			}
			if valid := guard.Must(robocache.Validity(ctx, q.set.ds, f, row)); valid != nil {
				no := false
				v.Valid, v.Values = &no, nil
			}
		}
		out = append(out, v)
	}
	return q.json(out)
}
