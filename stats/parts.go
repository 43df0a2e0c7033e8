package stats

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"slices"
	"sort"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
)

// Part is what is known of some rows of a numeric feature, so that parts give the statistics of all
// rows: moments, and the values in ascending order. Every so many of them stands in Marks, all of
// them in a file where those are not all.
type Part struct {
	DType     robocache.DType `json:"dtype"`
	Rows      int64           `json:"rows"`
	NonFinite int64           `json:"non_finite,omitempty"`
	Columns   []PartColumn    `json:"columns"`

	Less float64     `json:"-"` // is taken from every value
	File *SortedFile `json:"-"` // that of the Sorter
}

// SortedFile is the file of some parts, which is opened where it is needed.
type SortedFile struct {
	Open func() (robocache.Ranged, error)
	once sync.Once
	file robocache.Ranged
	err  error
}

// Close closes the file, where it was opened.
func (f *SortedFile) Close() {
	if f.once.Do(func() {}); f.file != nil {
		f.file.Close()
	}
}

func (f *SortedFile) read(ctx context.Context, off, n int64) ([]byte, error) {
	f.once.Do(func() { f.file, f.err = f.Open() })
	if err := f.err; err != nil {
		return nil, err
	}
	if off < 0 || n < 0 || n > f.file.Size()-off {
		return nil, errOther
	}
	b := make([]byte, n)
	if err := f.file.ReadAt(ctx, b, off); err != nil {
		return nil, err
	}
	return b, nil
}

var errOther = robocache.Malformed(
	"statistics",
	nil,
	"a part of a column does not hold what it says",
)

// Least is the least value of a column; 0 where it has none.
func (p *Part) Least(c int) (float64, error) {
	if r, err := p.open(c); err != nil {
		return 0, err
	} else if r.N > 0 {
		return r.marks[0], nil
	}
	return 0, nil
}

// PartColumn is a column of a part. Its entries are its values, or where that is shorter the
// different ones, each with how often it occurs.
type PartColumn struct {
	N       int64   `json:"n"` // finite values
	Base    float64 `json:"base"`
	Mean    float64 `json:"mean"` // of the distances from Base
	M2      float64 `json:"m2"`
	Entries int64   `json:"entries"`
	// entries 0, s, 2s … and the last, s = ceil(Entries/256); with counts: value, values below it,
	// values up to it
	Marks []byte `json:"marks,omitempty"`
	At    int64  `json:"at,omitempty"` // of the entries in the file, where s > 1
}

const partMarks = 256

func step(entries int64) int64 { return max(1, (entries+partMarks-1)/partMarks) }

// Sorter makes parts. Create is asked for their file once there is something to write.
type Sorter struct {
	Create  func() (io.Writer, error)
	out     io.Writer
	at      int64
	columns [][]uint64 // memory of keys, used again
}

// Parts sorts rows of a feature, of about so many bytes: one part, or several where they take more
// than budget.
func (s *Sorter) Parts(
	ctx context.Context,
	dtype robocache.DType,
	shape []int,
	rows Blocks,
	bytes, budget int64,
) (parts []Part, err error) {
	width, size := 1, dtype.Size()
	elements := width
	for _, d := range shape {
		elements, width = elements*d, d
	}
	if size == 0 || elements <= 0 {
		return nil, nil
	}
	for len(s.columns) < width {
		s.columns = append(s.columns, nil)
	}
	columns := s.columns[:width] // keys
	var m *Moments
	var count, held int64
	t := tools.Get().(*tool)
	defer t.back()
	var values []float64
	begin := func() {
		m, count, held = NewMoments(width), 0, 0
		for c := range columns {
			columns[c] = slices.Grow(
				columns[c][:0],
				int(min(bytes/int64(size), budget/8)/int64(width)),
			)
		}
	}
	begin()
	end := func() error {
		partValue, err := s.part(dtype, count, m, columns)
		if err != nil {
			return err
		}
		parts = append(parts, partValue)
		return nil
	}
	if err := rows(ctx, func(raw []byte) error {
		if held > 0 && held+8*int64(len(raw)/size) > budget {
			if err := end(); err != nil {
				return err
			}
			begin()
		}
		count += int64(len(raw) / (elements * size))
		held += 8 * int64(len(raw)/size)
		return each(raw, width*size, func(part []byte) error {
			for c := range width {
				values = t.finite(values[:0], dtype, part, c, width)
				for _, v := range values {
					columns[c] = append(columns[c], key(v+0)) // -0 is 0
				}
				m.column(c, values, 1)
				m.NonFinite += int64(len(part)/size/width - len(values))
			}
			return ctx.Err()
		})
	}); err != nil {
		return parts, err
	}
	if count > 0 {
		if err := end(); err != nil {
			return parts, err
		}
	}
	return parts, nil
}

// part ends a part: its columns are sorted side by side, and written one after the other.
func (s *Sorter) part(
	dtype robocache.DType,
	rows int64,
	m *Moments,
	columns [][]uint64,
) (Part, error) {
	p := Part{
		DType:     dtype,
		Rows:      rows,
		NonFinite: m.NonFinite,
		Columns:   make([]PartColumn, len(columns)),
	}
	files := make([][]byte, len(columns))
	var g errgroup.Group
	workers := runtime.GOMAXPROCS(0)
	for w := range min(workers, len(columns)) {
		g.Go(func() error {
			var scratch []uint64
			for c := w; c < len(columns); c += workers {
				scratch = slices.Grow(scratch[:0], len(columns[c]))[:len(columns[c])]
				sortKeys(columns[c], scratch)
				p.Columns[c] = PartColumn{
					N:       m.N[c],
					Base:    m.base[c],
					Mean:    m.mean[c],
					M2:      m.m2[c],
					Entries: m.N[c],
				}
				files[c] = p.Columns[c].entries(dtype, columns[c])
			}
			return nil
		})
	}
	_ = g.Wait()
	for c, file := range files {
		if p.Columns[c].At = s.at; step(p.Columns[c].Entries) > 1 {
			if s.out == nil {
				var err error
				if s.out, err = s.Create(); err != nil {
					return Part{}, err
				}
			}
			write, err := s.out.Write(file)
			if err != nil {
				return Part{}, err
			}
			s.at += int64(write)
		}
	}
	return p, nil
}

// entries makes the column's marks of sorted keys, and the text of all its entries.
func (col *PartColumn) entries(dtype robocache.DType, keys []uint64) (file []byte) {
	le, size := binary.LittleEndian, int64(valueSize(dtype))
	different := int64(0)
	for i, k := range keys {
		if i == 0 || k != keys[i-1] {
			different++
		}
	}
	counted := 16*different < size*col.N
	if counted {
		col.Entries, size = different, 16
	}
	file = make([]byte, 0, size*col.Entries)
	every := step(col.Entries)
	for i, e := 0, int64(0); i < len(keys); e++ {
		n := 1
		for counted && i+n < len(keys) && keys[i+n] == keys[i] {
			n++
		}
		at := len(file)
		if file = appendValue(
			file,
			dtype,
			counted,
			ofKey(keys[i]),
		); e%every == 0 ||
			e == col.Entries-1 {
			if col.Marks = append(col.Marks, file[at:]...); counted {
				col.Marks = le.AppendUint64(le.AppendUint64(col.Marks, uint64(i)), uint64(i+n))
			}
		}
		if counted {
			file = le.AppendUint64(file, uint64(n))
		}
		i += n
	}
	return file
}

// valueSize is that of a value in a file: types of up to 24 bits and of float32's are exact in one.
func valueSize(d robocache.DType) int {
	if d.Size() <= 2 || d == robocache.Float32 {
		return 4
	}
	return 8
}

func appendValue(b []byte, d robocache.DType, counted bool, v float64) []byte {
	if !counted && valueSize(d) == 4 {
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

// sortKeys sorts by digits of 11 bits, from the lowest on; digits that are the same in all keys are
// passed over.
func sortKeys(keys, scratch []uint64) {
	if slices.IsSorted(keys) {
		return
	}
	if len(keys) < 1<<digitBits {
		slices.Sort(keys)
		return
	}
	var counts [6][1 << digitBits]int32
	for _, k := range keys {
		for d := range counts {
			counts[d][k>>(d*digitBits)&(1<<digitBits-1)]++
		}
	}
	from, to := keys, scratch
	for d := range counts {
		at, n := &counts[d], int32(0)
		shift := d * digitBits
		if int(at[keys[0]>>shift&(1<<digitBits-1)]) == len(keys) {
			continue
		}
		for i, c := range at {
			at[i], n = n, n+c
		}
		for _, k := range from {
			i := k >> shift & (1<<digitBits - 1)
			to[at[i]] = k
			at[i]++
		}
		from, to = to, from
	}
	if &from[0] != &keys[0] {
		copy(keys, from)
	}
}

// run is a column of a part, as Whole sees it.
type run struct {
	*PartColumn
	p              *Part
	counted        bool
	marks          []float64
	below, through []int64 // of each mark: values before it, and up to its last
}

// open reads the marks, which may be a stranger's.
func (p *Part) open(c int) (r run, err error) {
	r = run{PartColumn: &p.Columns[c], p: p}
	r.counted = r.Entries < r.N
	size, want := valueSize(p.DType), (r.Entries-1)/step(r.Entries)+1
	if r.counted {
		size = 24
	}
	if (r.Entries-1)%step(r.Entries) != 0 {
		want++
	}
	bad := r.N < 0 || r.N > 1<<48 || r.Entries < 0 || r.Entries > r.N ||
		r.N > 0 && (r.Entries == 0 || int64(len(r.Marks)) != want*int64(size))
	if !bad && r.N > 0 {
		le, last := binary.LittleEndian, int64(0)
		r.marks = make([]float64, 0, want)
		r.below = make([]int64, 0, want)
		r.through = make([]int64, 0, want)
		for b, j := r.Marks, int64(0); len(b) > 0; b, j = b[size:], j+1 {
			v, below := p.value(b, r.counted), min(j*step(r.Entries), r.N-1)
			through := below + 1
			if r.counted {
				below, through = int64(le.Uint64(b[8:])), int64(le.Uint64(b[16:]))
			}
			bad = bad || below < last || through <= below || through > r.N || v-v != 0 ||
				j > 0 && v < r.marks[j-1]
			r.marks = append(r.marks, v)
			r.below = append(r.below, below)
			r.through = append(r.through, through)
			last = through
		}
	}
	if bad || r.N > 0 && r.through[len(r.through)-1] != r.N ||
		step(r.Entries) > 1 && p.File == nil {
		return r, errOther
	}
	return r, nil
}

func (p *Part) value(b []byte, counted bool) float64 {
	if !counted && valueSize(p.DType) == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) - p.Less
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b)) - p.Less
}

func (r *run) entrySize() int {
	if r.counted {
		return 16
	}
	return valueSize(r.p.DType)
}

// most is the largest number of values that can be less than x.
func (r *run) most(x float64) int64 {
	if j := sort.SearchFloat64s(r.marks, x); j < len(r.marks) {
		return r.below[j]
	}
	return r.N
}

// least is the smallest number of values that can be at most x.
func (r *run) least(x float64) int64 {
	if j := r.above(x); j > 0 {
		return r.through[j-1]
	}
	return 0
}

func (r *run) above(x float64) int {
	return sort.Search(len(r.marks), func(j int) bool { return r.marks[j] > x })
}

// between gives the entries that can lie in [a, b], with how often they occur, and how many values
// are before them.
func (r *run) between(
	ctx context.Context,
	a, b float64,
	yield func(v float64, n int64),
) (before int64, err error) {
	if r.N == 0 {
		return 0, nil
	}
	every := step(r.Entries)
	j, k := sort.SearchFloat64s(r.marks, a), r.above(b)
	from, to := int64(0), r.Entries
	if j > 0 {
		from, before = min(int64(j-1)*every, r.Entries-1)+1, r.through[j-1]
	}
	if k < len(r.marks) {
		to = min(int64(k)*every, r.Entries-1)
	}
	if every == 1 {
		for e := from; e < to; e++ {
			yield(r.marks[e], r.through[e]-r.below[e])
		}
		return before, nil
	}
	size := int64(r.entrySize())
	if from >= to {
		return before, nil
	}
	buf, err := r.p.File.read(ctx, r.At+from*size, (to-from)*size)
	if err != nil {
		return before, err
	}
	for ; len(buf) > 0; buf = buf[size:] {
		n := int64(1)
		if r.counted {
			n = int64(binary.LittleEndian.Uint64(buf[8:]))
		}
		yield(r.p.value(buf, r.counted), n)
	}
	return before, nil
}
