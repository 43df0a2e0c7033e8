package stats

import (
	"context"
	"math"
	"runtime"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Rules for the rows of a window that lie outside its episode.
const (
	BeyondRepeat = "repeat" // the first or the last row of the episode is counted in their place
	BeyondOmit   = "omit"   // they are not counted
	BeyondDrop   = "drop"   // windows with such rows are not counted
)

// WindowPart is a slice of a stream's columns in the rows of a window.
type WindowPart struct {
	Key     string `json:"key"`
	Columns []int  `json:"columns"` // nil: all
	// Reference is the stream from which a reference row is subtracted. It is "" for absolute
	// values.
	Reference string `json:"reference"`
	// ReferenceColumns has for each column the column that is subtracted, or −1 if it stays
	// absolute. nil: those of Columns.
	ReferenceColumns []int `json:"reference_columns"`
	// ReferenceRow is the offset of the reference row from the row of the sample. It is clamped to
	// the episode.
	ReferenceRow int `json:"reference_row"`
	// Round rounds stored values to float32 before anything else. Double keeps differences and
	// results of Values in float64; by default they are rounded to float32.
	Round  bool `json:"round"`
	Double bool `json:"double"`
	// Values writes the ValuesWidth values of a row to dst, in place of a subtraction: row has the
	// Columns, reference the ReferenceColumns. It must be safe for concurrent use.
	Values      func(dst, row, reference []float64) `json:"-"`
	ValuesWidth int                                 `json:"-"`
}

// WindowVector describes a vector whose statistics are counted over windows: parts that are joined
// in a row, and the rows of a window.
type WindowVector struct {
	Parts []WindowPart `json:"parts"`
	// Rows holds the offsets of a window's rows from the row of its sample; nil: {0}.
	Rows   []int  `json:"rows"`
	Beyond string `json:"beyond"` // "": BeyondRepeat
	// PerStep counts each row of a window separately: the statistics have shape (T, D).
	PerStep bool `json:"per_step"`
	// SingleSums computes mean and deviation with sums in float32, and quantiles from differences of
	// neighbours in float32, as
	// NumPy 1.26 does for a float32 array that it reduces over its first axis.
	SingleSums bool `json:"single_sums"`
	// DropFirst and DropLast are the numbers of rows at the ends of each episode that are no
	// samples.
	DropFirst int `json:"drop_first"`
	DropLast  int `json:"drop_last"`
}

// WindowOptions are the options of Windows. The zero value is a good default.
type WindowOptions struct {
	Episodes []int // positions; nil = all
	Budget   int64 // bytes for values and counts; 0 = 256 MiB
	Threads  int   // 0 = the number of CPUs
	// Histogram is the number of bins of running histograms, from which quantiles are read as
	// openpi does. 0: exact quantiles.
	Histogram int
	// Batch is the number of windows after which a running histogram may change its edges; 0 = 32.
	Batch int
	// DropLast leaves out the last windows if they are fewer than Batch.
	DropLast bool
	// OnFinding is called for values that are not finite.
	OnFinding func(robocache.Finding)
}

// Windows computes the statistics of vectors over the windows of a dataset: one window for each row
// of the episodes. The vectors of the result are flat and in the order of the parts. Count is the
// number of rows counted.
func Windows(
	ctx context.Context, ds robocache.Dataset, vectors map[string]*WindowVector, opt WindowOptions,
) (robocache.Stats, error) {
	if opt.Budget <= 0 {
		opt.Budget = 256 << 20
	}
	if opt.Threads <= 0 {
		opt.Threads = runtime.GOMAXPROCS(0)
	}
	if opt.Batch <= 0 {
		opt.Batch = 32
	}
	if opt.Episodes == nil {
		opt.Episodes = make([]int, ds.Info().Episodes)
		for i := range opt.Episodes {
			opt.Episodes[i] = i
		}
	}
	out := robocache.Stats{}
	for name, v := range vectors {
		where := robocache.Where{"vector": name}
		c, err := newWindowCounter(ds, v, &opt)
		if err == nil {
			out[name], err = c.count(ctx)
		}
		if err != nil {
			return nil, robocache.At(err, where)
		}
		if n := c.nonFinite; n > 0 && opt.OnFinding != nil {
			opt.OnFinding(robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "not-finite",
				Where:    where,
				Message:  strconv.FormatInt(n, 10) + " values that are not finite are left out",
				Count:    n,
			})
		}
	}
	return out, nil
}

// windowUnit is the columns of a vector that are counted together: one column, or the result of
// WindowPart.Values.
type windowUnit struct {
	part      *WindowPart
	columns   []*windowColumn // read
	reference []*windowColumn // subtracted; a nil entry: absolute
	width     int             // columns that are counted
	offsets   []int
	step      int       // of the first offset in the window
	at        int       // first column in the vector
	buffer    []float64 // reused by eachRun; a unit runs on one thread at a time
}

// windowColumn is a column of a stream that is read.
type windowColumn struct {
	key     string
	number  int
	isRound bool
}

// newUnits returns the units of a vector and its width.
func (c *windowCounter) newUnits(v *WindowVector) (units []*windowUnit, err error) {
	rows := v.Rows
	if rows == nil {
		rows = []int{0}
	}
	steps := [][]int{rows}
	if v.PerStep {
		steps = nil
		for _, k := range rows {
			steps = append(steps, []int{k})
		}
	}
	for i := range v.Parts {
		p := &v.Parts[i]
		columns, reference, err := c.partColumns(p)
		if err != nil {
			return nil, err
		}
		for s, offsets := range steps {
			if p.Values != nil {
				units = append(units, &windowUnit{
					p, columns, reference, p.ValuesWidth, offsets, s, c.width, nil,
				})
				continue
			}
			for k := range columns {
				units = append(units, &windowUnit{
					p, columns[k : k+1], reference[k : k+1], 1, offsets, s, c.width + k, nil,
				})
			}
		}
		if p.Values != nil {
			c.width += p.ValuesWidth
		} else {
			c.width += len(columns)
		}
	}
	c.rows, c.steps = rows, len(steps)
	return units, nil
}

// partColumns returns the columns that a part reads, and those that are subtracted from them.
func (c *windowCounter) partColumns(p *WindowPart) (columns, reference []*windowColumn, err error) {
	f, err := c.numericStream(p.Key)
	if err != nil {
		return nil, nil, err
	}
	numbers := p.Columns
	if numbers == nil {
		for k := range f.Elements() {
			numbers = append(numbers, k)
		}
	}
	take := func(key string, width, k int) (*windowColumn, error) {
		if k < 0 || k >= width {
			return nil, robocache.Misuse("statistics", robocache.Where{"stream": key}, "column").
				Expected("0 to "+strconv.Itoa(width-1), strconv.Itoa(k))
		}
		at := windowColumn{key, k, p.Round}
		if c.columns[at] == nil {
			c.columns[at] = &at
		}
		return c.columns[at], nil
	}
	for _, k := range numbers {
		one, err := take(p.Key, f.Elements(), k)
		if err != nil {
			return nil, nil, err
		}
		columns = append(columns, one)
	}
	if p.Reference == "" {
		if p.Values == nil {
			reference = make([]*windowColumn, len(columns))
		}
		return columns, reference, nil
	}
	r, err := c.numericStream(p.Reference)
	if err != nil {
		return nil, nil, err
	}
	from := p.ReferenceColumns
	if from == nil {
		from = numbers
	}
	if p.Values == nil && len(from) != len(columns) {
		return nil, nil, robocache.Misuse("statistics", robocache.Where{"stream": p.Key},
			"reference columns").Expected(strconv.Itoa(len(columns)), strconv.Itoa(len(from)))
	}
	reference = make([]*windowColumn, len(from))
	for k, n := range from {
		if n != -1 || p.Values != nil {
			if reference[k], err = take(p.Reference, r.Elements(), n); err != nil {
				return nil, nil, err
			}
		}
	}
	return columns, reference, nil
}

// numericStream returns a stream of plain numbers on the clock of the rows.
func (c *windowCounter) numericStream(key string) (*robocache.Feature, error) {
	where := robocache.Where{"stream": key}
	f := c.ds.Info().Feature(key)
	switch {
	case f == nil:
		return nil, robocache.Misuse("statistics", where, "the dataset has no stream of that key").
			WithHint("%s", robocache.Nearest(key, c.ds.Info().Keys()))
	case f.RowBytes() == 0:
		return nil, robocache.Unsupported("statistics", where,
			"statistics over windows of a stream that is no plain numbers")
	case f.Clock != "":
		return nil, robocache.Unsupported("statistics", where,
			"statistics over windows of a stream with its own clock").
			WithHint("Pass %s to put the streams on one timeline.", robocache.Option("hz"))
	}
	return f, nil
}

// windowSpan is an episode in a block: its rows, and the windows that are counted.
type windowSpan struct {
	base, rows int // first row in the block, and number of rows
	from, to   int // rows that are samples
}

// spanOf returns the windows of an episode with n rows.
func (c *windowCounter) spanOf(base, n int) windowSpan {
	s := windowSpan{base, n, max(0, c.vector.DropFirst), n - max(0, c.vector.DropLast)}
	if c.vector.Beyond == BeyondDrop {
		s.from = max(s.from, -slices.Min(c.rows))
		s.to = min(s.to, n-max(0, slices.Max(c.rows)))
	}
	s.to = max(s.to, s.from)
	return s
}

// windowRun is the longest run of windows whose values are computed together.
const windowRun = 4096

// eachRun calls emit with the values of a unit's columns in the windows from to to of a span.
// weights has the number of times that each value occurs; nil: once. The slices are reused.
func (u *windowUnit) eachRun(
	b *windowBlock, s windowSpan, from, to int, emit func(c int, values []float64, weights []int64),
) {
	switch {
	case from >= to:
	case u.part.Values != nil:
		u.eachConverted(b, s, from, to, emit)
	case u.reference[0] == nil:
		values, weights := u.countRows(b, s, from, to)
		emit(0, values, weights)
	default:
		u.eachDifference(b, s, from, to, emit)
	}
}

// countRows returns the rows of an absolute column that windows hold, each once, and how often each
// occurs.
func (u *windowUnit) countRows(
	b *windowBlock, s windowSpan, from, to int,
) (values []float64, weights []int64) {
	clamp := func(r int) int { return min(max(r, 0), s.rows-1) }
	first := clamp(from + slices.Min(u.offsets))
	last := clamp(to - 1 + slices.Max(u.offsets))
	n := last - first + 1
	counts := make([]int64, n+1) // differences of neighbouring counts, then counts
	for _, k := range u.offsets {
		lo, hi := from+k, to+k // rows lo to hi−1
		if b.isOmitting {
			lo, hi = max(lo, 0), min(hi, s.rows)
			if lo >= hi {
				continue
			}
		}
		if inside := clamp(lo) - first; lo < 0 || lo >= s.rows {
			outside := int64(min(hi, 0) - lo)
			if lo >= s.rows {
				outside = int64(hi - lo)
			}
			counts[inside] += outside
			counts[inside+1] -= outside
			lo += int(outside)
		}
		if over := hi - max(lo, s.rows); over > 0 && lo < hi {
			counts[s.rows-1-first] += int64(over)
			counts[s.rows-first] -= int64(over)
			hi -= over
		}
		if lo < hi {
			counts[lo-first]++
			counts[hi-first]--
		}
	}
	isPlain := true
	for i := range n {
		if i > 0 {
			counts[i] += counts[i-1]
		}
		isPlain = isPlain && counts[i] == 1
	}
	values = b.values[u.columns[0]][s.base+first : s.base+last+1]
	if isPlain {
		return values, nil
	}
	return values, counts[:n]
}

// eachDifference emits the differences of a column from its reference rows, offset by offset.
func (u *windowUnit) eachDifference(
	b *windowBlock, s windowSpan, from, to int, emit func(c int, values []float64, weights []int64),
) {
	rows := b.values[u.columns[0]][s.base : s.base+s.rows]
	references := b.values[u.reference[0]][s.base : s.base+s.rows]
	clamp := func(r int) int { return min(max(r, 0), s.rows-1) }
	if u.buffer == nil {
		u.buffer = make([]float64, windowRun)
	}
	buf := u.buffer[:0:windowRun]
	for _, k := range u.offsets {
		for t := from; t < to; {
			if len(buf) == windowRun {
				emit(0, buf, nil)
				buf = buf[:0]
			}
			j := u.part.ReferenceRow
			n := min(to-t, windowRun-len(buf))
			switch {
			case t+k >= 0 && t+j >= 0 && max(t+k, t+j) < s.rows:
				n = min(n, s.rows-t-max(k, j))
				buf = appendDifferences(buf, rows[t+k:t+k+n], references[t+j:t+j+n], u.part.Double)
			case b.isOmitting && clamp(t+k) != t+k:
				n = 1
			default:
				n = 1
				at, ref := clamp(t+k), clamp(t+j)
				buf = appendDifferences(buf, rows[at:at+1], references[ref:ref+1], u.part.Double)
			}
			t += n
		}
	}
	if len(buf) > 0 {
		emit(0, buf, nil)
	}
}

// appendDifferences appends a − b to dst, rounded to float32 unless isDouble.
func appendDifferences(dst, a, b []float64, isDouble bool) []float64 {
	n := len(dst)
	dst = dst[:n+len(a)]
	out := dst[n:]
	b = b[:len(a)]
	if isDouble {
		for i, x := range a {
			out[i] = x - b[i]
		}
		return dst
	}
	for i, x := range a {
		out[i] = float64(float32(x - b[i]))
	}
	return dst
}

// eachConverted emits what Values makes of rows and their reference rows.
func (u *windowUnit) eachConverted(
	b *windowBlock, s windowSpan, from, to int, emit func(c int, values []float64, weights []int64),
) {
	row, reference := make([]float64, len(u.columns)), make([]float64, len(u.reference))
	dst := make([]float64, u.width)
	if u.buffer == nil {
		u.buffer = make([]float64, u.width*windowRun)
	}
	for _, k := range u.offsets {
		for t := from; t < to; {
			n := 0
			for end := min(to, t+windowRun); t < end; t++ {
				r := min(max(t+k, 0), s.rows-1)
				if b.isOmitting && r != t+k {
					continue
				}
				at := s.base + min(max(t+u.part.ReferenceRow, 0), s.rows-1)
				for c := range row {
					row[c] = b.values[u.columns[c]][s.base+r]
				}
				for c := range reference {
					reference[c] = b.values[u.reference[c]][at]
				}
				u.part.Values(dst, row, reference)
				for c, v := range dst {
					if !u.part.Double {
						v = float64(float32(v))
					}
					u.buffer[c*windowRun+n] = v
				}
				n++
			}
			for c := range u.width {
				emit(c, u.buffer[c*windowRun:c*windowRun+n], nil)
			}
		}
	}
}

// addWeighted adds values to column c, each as often as its weight states.
func (m *Moments) addWeighted(c int, values []float64, weights []int64) {
	if weights == nil {
		m.addColumn(c, values, 1)
		return
	}
	var n int64
	var sum float64
	if m.N[c] == 0 && len(values) > 0 && !math.IsNaN(values[0]) && !math.IsInf(values[0], 0) {
		m.base[c] = values[0]
	}
	base := m.base[c]
	for i, v := range values {
		switch w := weights[i]; {
		case w == 0:
		case v-v != 0:
			m.NonFinite += w
		default:
			n += w
			sum += float64(float64(w) * (v - base))
			m.Min[c], m.Max[c] = min(m.Min[c], v), max(m.Max[c], v)
		}
	}
	if n == 0 {
		return
	}
	mean := sum / float64(n)
	var m2, rest float64
	for i, v := range values {
		if w := float64(weights[i]); v-v == 0 {
			d := v - base - mean
			m2 += float64(w * float64(d*d))
			rest += float64(w * d)
		}
	}
	m2 -= float64(rest * rest / float64(n)) // as in addColumn
	m.mergeColumn(c, n, mean+rest/float64(n), m2)
}
