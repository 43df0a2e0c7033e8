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

// Part summarizes some rows of a numeric feature, so that the statistics of all rows can be
// computed from parts. It has moments, and the values in ascending order. Marks holds every few
// values. If that is not all of them, a file holds all.
type Part struct {
	DType     robocache.DType `json:"dtype"`
	Rows      int64           `json:"rows"`
	NonFinite int64           `json:"non_finite,omitempty"`
	Columns   []PartColumn    `json:"columns"`

	Less float64     `json:"-"` // subtracted from every value
	File *SortedFile `json:"-"` // the file of the Sorter
}

// SortedFile is the file of some parts. It is opened when it is first read.
type SortedFile struct {
	Open func() (robocache.Ranged, error)
	once sync.Once
	file robocache.Ranged
	err  error
}

// Close closes the file if it was opened.
func (f *SortedFile) Close() {
	if f.once.Do(func() {}); f.file != nil {
		f.file.Close()
	}
}

func (f *SortedFile) readRange(ctx context.Context, off, n int64) ([]byte, error) {
	f.once.Do(func() { f.file, f.err = f.Open() })
	if err := f.err; err != nil {
		return nil, err
	}
	if off < 0 || n < 0 || n > f.file.Size()-off {
		return nil, errCorruptPart
	}
	b := make([]byte, n)
	if err := f.file.ReadAt(ctx, b, off); err != nil {
		return nil, err
	}
	return b, nil
}

var errCorruptPart = robocache.Malformed(
	"statistics",
	nil,
	"a part of a column does not hold what it says",
)

// Least returns the smallest value of a column, or 0 if it has none.
func (p *Part) Least(c int) (float64, error) {
	if r, err := p.openColumn(c); err != nil {
		return 0, err
	} else if r.N > 0 {
		return r.marks[0], nil
	}
	return 0, nil
}

// PartColumn is a column of a part. Its entries are its values. If it is shorter, they are the
// distinct values with their counts instead.
type PartColumn struct {
	N       int64   `json:"n"` // number of finite values
	Base    float64 `json:"base"`
	Mean    float64 `json:"mean"` // mean of the distances from Base
	M2      float64 `json:"m2"`
	Entries int64   `json:"entries"`
	// entries 0, s, 2s … and the last, with s = ceil(Entries/256). With counts, each mark is the
	// value, the number of values below it, and the number of values up to it.
	Marks []byte `json:"marks,omitempty"`
	At    int64  `json:"at,omitempty"` // offset of the entries in the file, if s > 1
}

const partMarks = 256

func markStep(entries int64) int64 { return max(1, (entries+partMarks-1)/partMarks) }

// Sorter creates parts. Create is called for their file when there is something to write.
type Sorter struct {
	Create  func() (io.Writer, error)
	out     io.Writer
	at      int64
	columns [][]uint64 // reusable memory for keys
}

// Parts sorts rows of a feature. bytes is their approximate size. It returns one part, or several
// if the rows exceed budget.
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
	columns := s.columns[:width] // keys of the values
	var m *Moments
	var count, held int64
	t := counterPool.Get().(*counter)
	defer t.returnToPool()
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
		partValue, err := s.finishPart(dtype, count, m, columns)
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
		return eachPart(raw, width*size, func(part []byte) error {
			for c := range width {
				values = t.appendFinite(values[:0], dtype, part, c, width)
				for _, v := range values {
					columns[c] = append(columns[c], orderKey(v+0)) // -0 becomes 0
				}
				m.addColumn(c, values, 1)
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

// finishPart finishes a part: it sorts its columns in parallel, and writes them one after another.
func (s *Sorter) finishPart(
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
				files[c] = p.Columns[c].encodeEntries(dtype, columns[c])
			}
			return nil
		})
	}
	_ = g.Wait()
	for c, file := range files {
		if p.Columns[c].At = s.at; markStep(p.Columns[c].Entries) > 1 {
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

// encodeEntries sets the marks of a column from sorted keys, and returns the encoded entries.
func (col *PartColumn) encodeEntries(dtype robocache.DType, keys []uint64) (file []byte) {
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
	every := markStep(col.Entries)
	for i, e := 0, int64(0); i < len(keys); e++ {
		n := 1
		for counted && i+n < len(keys) && keys[i+n] == keys[i] {
			n++
		}
		at := len(file)
		if file = appendValue(file, dtype, counted, keyValue(keys[i])); e%every == 0 ||
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

// valueSize returns the size of a value in a file. float32 represents types of up to 16 bits and
// float32 exactly.
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

// sortKeys sorts by digits of 11 bits, lowest first. It skips digits that are equal in all keys.
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

// partRun is a column of a part, as Whole reads it.
type partRun struct {
	*PartColumn
	p              *Part
	counted        bool
	marks          []float64
	below, through []int64 // of each mark: number of values before it, and up to its last
}

// openColumn decodes and checks the marks of a column, which can come from an untrusted file.
func (p *Part) openColumn(c int) (r partRun, err error) {
	r = partRun{PartColumn: &p.Columns[c], p: p}
	r.counted = r.Entries < r.N
	size, want := valueSize(p.DType), (r.Entries-1)/markStep(r.Entries)+1
	if r.counted {
		size = 24
	}
	if (r.Entries-1)%markStep(r.Entries) != 0 {
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
			v, below := p.decodeValue(b, r.counted), min(j*markStep(r.Entries), r.N-1)
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
		markStep(r.Entries) > 1 && p.File == nil {
		return r, errCorruptPart
	}
	return r, nil
}

func (p *Part) decodeValue(b []byte, counted bool) float64 {
	if !counted && valueSize(p.DType) == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) - p.Less
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b)) - p.Less
}

func (r *partRun) entrySize() int {
	if r.counted {
		return 16
	}
	return valueSize(r.p.DType)
}

// maxBelow returns the largest number of values that can be less than x.
func (r *partRun) maxBelow(x float64) int64 {
	if j := sort.SearchFloat64s(r.marks, x); j < len(r.marks) {
		return r.below[j]
	}
	return r.N
}

// minUpTo returns the smallest number of values that can be at most x.
func (r *partRun) minUpTo(x float64) int64 {
	if j := r.firstMarkAbove(x); j > 0 {
		return r.through[j-1]
	}
	return 0
}

func (r *partRun) firstMarkAbove(x float64) int {
	return sort.Search(len(r.marks), func(j int) bool { return r.marks[j] > x })
}

// eachBetween calls yield for the entries that can lie in [a, b], with their counts. before is the
// number of values before them.
func (r *partRun) eachBetween(
	ctx context.Context,
	a, b float64,
	yield func(v float64, n int64),
) (before int64, err error) {
	if r.N == 0 {
		return 0, nil
	}
	every := markStep(r.Entries)
	j, k := sort.SearchFloat64s(r.marks, a), r.firstMarkAbove(b)
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
	buf, err := r.p.File.readRange(ctx, r.At+from*size, (to-from)*size)
	if err != nil {
		return before, err
	}
	for ; len(buf) > 0; buf = buf[size:] {
		n := int64(1)
		if r.counted {
			n = int64(binary.LittleEndian.Uint64(buf[8:]))
		}
		yield(r.p.decodeValue(buf, r.counted), n)
	}
	return before, nil
}
