package rlds

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// record is one episode, parsed: its bytes, and where in them the values are.
type record struct {
	data    []byte
	steps   int
	unknown int
	lists   []list
	columns []column // by leaf
	// without the bytes of its images: spans of those are positions in the whole record
	slim bool
}

// column is a leaf's values as rows, made when first asked for.
type column struct {
	once   sync.Once
	rows   []byte  // elements of the declared dtype, one row after the other
	starts []int64 // ragged: entries before row i, len = rows + 1
	outer  []int64 // nested: inner sequences before row i
	inner  []int64 // nested: their lengths
	err    error
}

// parseRecord reads a framed record and checks that every leaf has the number of values that its
// shape wants.
func (s *schema) parseRecord(b []byte) (*record, error) {
	data, err := framed(b)
	if err != nil {
		return nil, err
	}
	return s.parseData(data)
}

func (s *schema) parseData(data []byte) (_ *record, err error) {
	defer guard.Recover("rlds", &err)
	r := &record{data: data, lists: make([]list, s.slots), columns: make([]column, len(s.leaves))}
	if r.unknown, err = parseExample(data, s.names, r.lists); err != nil {
		return nil, robocache.Malformed("rlds", nil, "no tf.train.Example").WithCause(err)
	}
	r.steps = s.count(r.lists)
	for i := range s.leaves {
		s.leaves[i].check(r)
	}
	return r, nil
}

// thin is the record without its images; nil where that would spare less than half. Its values are
// checked: what is read of the images later is read from where they were when the check sum held.
func (r *record) thin(s *schema) *record {
	images := make([]bool, len(r.lists))
	for i := range s.leaves {
		if l := &s.leaves[i]; l.what == "" && (l.coding == frame || l.coding == floatPNG) {
			images[l.slot] = true
		}
	}
	n := 0
	for i := range r.lists {
		if !images[i] {
			n += len(r.lists[i].raw)
		}
	}
	if n > len(r.data)/2 {
		return nil
	}
	out := &record{
		data:    make([]byte, 0, n),
		steps:   r.steps,
		unknown: r.unknown,
		lists:   append([]list(nil), r.lists...),
		columns: make([]column, len(r.columns)),
		slim:    true,
	}
	for i := range out.lists {
		l := &out.lists[i]
		if l.raw == nil || images[i] {
			l.raw, l.run = nil, nil
			continue
		}
		// Both are slices of data to its end: their capacities say where they begin.
		from, at := cap(r.data)-cap(l.raw), len(out.data)
		run := -1
		if l.run != nil {
			run = cap(l.raw) - cap(l.run)
		}
		out.data = append(out.data, l.raw...)
		l.raw = out.data[at:]
		if run >= 0 {
			l.run = l.raw[run : run+len(l.run)]
		}
		spans := make([]span, len(l.spans))
		for k, sp := range l.spans {
			spans[k] = span{uint32(int(sp.from) - from + at), uint32(int(sp.to) - from + at)}
		}
		l.spans = spans
	}
	return out
}

// count finds the number of steps: by is_first, else by any leaf of one fixed size a step, never by
// images.
func (s *schema) count(lists []list) int {
	for _, slot := range s.counted {
		l := s.counters[slot]
		if f := &lists[slot]; f.n > 0 {
			if f.n%l.listed() != 0 {
				guard.Fail(l.miscount(f.n, fmt.Sprintf("a multiple of %d", l.listed())))
			}
			return f.n / l.listed()
		}
	}
	return 0 // an episode of no steps: the checks find what says otherwise
}

func (l *leaf) miscount(got int, want string) error {
	return robocache.Malformed("rlds", robocache.Where{"stream": l.key, "column": l.name}, "the number of values of the record's key").
		Expected(want, fmt.Sprint(got))
}

// rows is the number of rows of a leaf in a record.
func (l *leaf) rows(r *record) int {
	if l.step {
		return r.steps
	}
	return 1
}

// absent says that the record has nothing of a leaf that may be left out.
func (l *leaf) absent(r *record) bool { return l.optional && r.lists[l.slot].n == 0 }

// missing reports whether the record lacks the key of a leaf that must be there.
func (l *leaf) missing(r *record) bool {
	return l.lacks(r.steps, func(slot int) bool { return r.lists[slot].found })
}

// lacks reports whether a record of so many steps lacks the key of a leaf that must be there. found
// reports whether the record has the key of a slot.
func (l *leaf) lacks(steps int, found func(slot int) bool) bool {
	if l.what != "" || l.optional || found(l.slot) || l.listed() == 0 || l.step && steps == 0 {
		return false
	}
	if len(l.lengths) > 0 {
		return !found(l.lengths[0])
	}
	return !l.varies
}

// errMissing is the error of reading a stream whose key the record lacks.
func (l *leaf) errMissing() error {
	return robocache.Malformed("rlds", robocache.Where{"stream": l.key, "column": l.name}, "the key is not in the record").
		WithHint("%s", robocache.LackingHint())
}

// check holds the lists of a leaf against its shape.
func (l *leaf) check(r *record) {
	if l.what != "" {
		return
	}
	f := &r.lists[l.slot]
	if f.n > 0 && f.kind != l.listKind() {
		guard.Fail(
			robocache.Malformed("rlds", robocache.Where{"stream": l.key, "column": l.name}, "").
				Expected(l.listKind().String(), f.kind.String()),
		)
	}
	// a key that is missing is an error of the streams that need it
	if l.absent(r) || l.missing(r) {
		return
	}
	rows := l.rows(r)
	for k, slot := range l.lengths {
		g := &r.lists[slot]
		if g.n > 0 && g.kind != intList {
			guard.Fail(
				robocache.Malformed("rlds", robocache.Where{"stream": l.key, "column": l.name}, "row lengths").
					Expected(intList.String(), g.kind.String()),
			)
		}
		if k == 0 && g.n != rows {
			guard.Fail(l.miscount(g.n, fmt.Sprintf("%d row lengths, one a step", rows)))
		}
	}
	elements := l.listed()
	switch {
	case len(l.lengths) > 0:
		return // settled with the lengths, when asked for
	case l.varies && !l.step:
		if elements > 0 && f.n%elements != 0 {
			guard.Fail(l.miscount(f.n, fmt.Sprintf("a multiple of %d", elements)))
		}
	case l.varies && l.coding == plain:
		// A tensor whose first dimension is open: the same number of entries in each step of an
		// episode.
		if per := rows * elements; per == 0 && f.n > 0 || per > 0 && f.n%per != 0 {
			guard.Fail(l.miscount(f.n, fmt.Sprintf("a multiple of %d × %d", rows, elements)))
		}
	case f.n != rows*elements:
		guard.Fail(l.miscount(f.n, fmt.Sprintf("%d = %d × %d", rows*elements, rows, elements)))
	}
}

// column gives the values of a numeric leaf; grown is told what that took.
func (s *schema) column(r *record, i int, grown func(int64)) (*column, error) {
	c, l := &r.columns[i], &s.leaves[i]
	if l.missing(r) {
		return nil, l.errMissing()
	}
	c.once.Do(func() {
		// A panic is the error of all who ask for the column, not of the first one only.
		if c.err = guard.Func("rlds", func() { l.fill(r, c) })(); c.err != nil {
			return
		}
		n := int64(len(c.starts)+len(c.outer)+len(c.inner)) * 8
		if l.dtype != robocache.Float32 || r.lists[l.slot].run == nil {
			n += int64(len(c.rows)) // else they are the record's own bytes
		}
		grown(n)
	})
	return c, c.err
}

// fill makes the rows of a leaf.
func (l *leaf) fill(r *record, c *column) {
	f := &r.lists[l.slot]
	rows := l.rows(r)
	switch l.coding {
	case plain:
		if l.absent(r) && !l.varies {
			return // Gather gives zeros, Valid says so
		}
		c.rows = l.numbers(f)
		l.split(r, c, rows, f.n)
	case textual:
		l.split(r, c, rows, f.n)
	}
}

// split finds where the rows of a ragged leaf begin, and checks lengths of fixed sequences. values
// counts elements.
func (l *leaf) split(r *record, c *column, rows, values int) {
	per := max(l.elements(), 1)
	if len(l.lengths) == 0 {
		if !l.varies {
			return
		}
		n := int64(0)
		if rows > 0 {
			n = int64(values / per / rows)
		}
		c.starts = make([]int64, rows+1)
		for i := range c.starts {
			c.starts[i] = int64(i) * n
		}
		return
	}
	lens := make([][]int64, len(l.lengths))
	for k, slot := range l.lengths {
		ok := r.lists[slot].eachInt(func(v int64) bool {
			lens[k] = append(lens[k], v)
			return v >= 0 && v <= 1<<31 && (l.fixed[k] < 0 || v == int64(l.fixed[k]))
		})
		if !ok {
			guard.Fail(l.miscount(int(lens[k][len(lens[k])-1]), "row lengths as declared"))
		}
	}
	// Lengths of the outer sequence count inner sequences; the innermost count values.
	ends := func(n []int64) []int64 {
		out := make([]int64, len(n)+1)
		for i, v := range n {
			out[i+1] = out[i] + v
		}
		return out
	}
	starts := ends(lens[0])
	total := starts[rows]
	if len(lens) == 2 {
		if int64(len(lens[1])) != total {
			guard.Fail(l.miscount(len(lens[1]), fmt.Sprintf("%d inner row lengths", total)))
		}
		inner := ends(lens[1])
		if l.nested() {
			c.inner, c.outer = lens[1], append([]int64(nil), starts...)
			for i := range starts {
				starts[i] = inner[starts[i]]
			}
		}
		total = inner[len(inner)-1]
	}
	own := int64(1) // of one value of the flat list
	for _, d := range l.shape[len(l.shape)-l.valueDims():] {
		own *= int64(d)
	}
	if total > int64(values) || int64(values) != total*own {
		guard.Fail(l.miscount(values, fmt.Sprintf("%d × %d, by the row lengths", total, own)))
	}
	if l.varies {
		c.starts = starts
	}
}

// valueDims is how many of a leaf's dimensions are of the value itself, and not of fixed sequences
// around it.
func (l *leaf) valueDims() int {
	n := len(l.shape)
	for i, d := range l.fixed {
		if d >= 0 && (i > 0 || !l.varies) {
			n--
		}
	}
	return n
}

// numbers makes a list's values elements of the declared dtype. Packed float32 are the record's own
// bytes.
func (l *leaf) numbers(f *list) []byte {
	size := l.dtype.Size()
	if l.dtype == robocache.Float32 && f.run != nil {
		return f.run
	}
	out := make([]byte, 0, f.n*size+8) // numbers are appended as 8 bytes, of which size stay
	if l.dtype.Float() {
		for run := range f.pieces() {
			out = appendFloats(out, l.dtype, run)
		}
		return out
	}
	least, most := int64(math.MinInt64), int64(math.MaxInt64) // uint64 was cast bit by bit
	switch l.dtype {
	case robocache.Uint8, robocache.Uint16, robocache.Uint32:
		least, most = 0, 1<<(8*size)-1
	case robocache.Int8, robocache.Int16, robocache.Int32:
		least, most = -1<<(8*size-1), 1<<(8*size-1)-1
	}
	var bad int64
	ok := f.eachInt(func(v int64) bool {
		if bad = v; v != 0 && l.dtype == robocache.Bool {
			v = 1
		}
		out = binary.LittleEndian.AppendUint64(out, uint64(v))[:len(out)+size]
		return least <= v && v <= most
	})
	if !ok {
		guard.Fail(
			robocache.Malformed("rlds", robocache.Where{"stream": l.key, "column": l.name}, "").
				Expected("values that fit "+l.dtype.String(), fmt.Sprint(bad)),
		)
	}
	return out
}

// appendFloats gives float32 values the declared type. float64 is widened: TFDS stores no more than
// float32.
func appendFloats(out []byte, d robocache.DType, run []byte) []byte {
	le := binary.LittleEndian
	if d == robocache.Float32 {
		return append(out, run...)
	}
	for p := 0; p+4 <= len(run); p += 4 {
		bits := le.Uint32(run[p:])
		switch d {
		case robocache.Float64:
			out = le.AppendUint64(out, math.Float64bits(float64(math.Float32frombits(bits))))
		case robocache.Float16:
			out = le.AppendUint16(out, robocache.HalfOf(float64(math.Float32frombits(bits))))
		case robocache.BFloat16:
			out = le.AppendUint16(out, brain(bits))
		}
	}
	return out
}

// brain rounds to bfloat16, ties to even; what was bfloat16 stays what it was.
func brain(bits uint32) uint16 {
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
