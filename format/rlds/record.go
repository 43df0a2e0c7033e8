package rlds

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// record is a parsed episode: its bytes and the positions of the values.
type record struct {
	data    []byte
	steps   int
	unknown int
	lists   []list
	columns []column // one per leaf
	// The bytes of images are removed. Their spans are positions in the whole record.
	isImageless bool
}

// column holds a leaf's values as rows, computed at the first use.
type column struct {
	once   sync.Once
	rows   []byte  // elements of the declared dtype, row by row
	starts []int64 // ragged: number of entries before row i; rows + 1 values
	outer  []int64 // nested: number of inner sequences before row i
	inner  []int64 // nested: lengths of the inner sequences
	err    error
}

// parseRecord parses a framed record and checks that every leaf has the number of values of its
// shape.
func (s *schema) parseRecord(b []byte) (*record, error) {
	data, err := unframe(b)
	if err != nil {
		return nil, err
	}
	return s.parseData(data)
}

// parseData parses the data of a record whose frame is verified.
func (s *schema) parseData(data []byte) (_ *record, err error) {
	defer guard.Recover("rlds", &err)
	r := &record{data: data, lists: make([]list, s.slots), columns: make([]column, len(s.leaves))}
	if r.unknown, err = parseExample(data, s.names, r.lists); err != nil {
		return nil, robocache.Malformed("rlds", nil, "no tf.train.Example").WithCause(err)
	}
	r.steps = s.countSteps(r.lists)
	for i := range s.leaves {
		s.leaves[i].checkCounts(r)
	}
	return r, nil
}

// withoutImages returns the record without its images, or nil if this would save less than half.
// Its values are verified, so images can later be read from the same positions.
func (r *record) withoutImages(s *schema) *record {
	images := make([]bool, len(r.lists))
	for i := range s.leaves {
		if l := &s.leaves[i]; l.unsupported == "" && (l.coding == frame || l.coding == floatPNG) {
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
		data:        make([]byte, 0, n),
		steps:       r.steps,
		unknown:     r.unknown,
		lists:       append([]list(nil), r.lists...),
		columns:     make([]column, len(r.columns)),
		isImageless: true,
	}
	for i := range out.lists {
		l := &out.lists[i]
		if l.raw == nil || images[i] {
			l.raw, l.run = nil, nil
			continue
		}
		// Both are slices of data up to its end, so their capacities give their positions.
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

// countSteps returns the number of steps. It uses is_first if it exists, otherwise a leaf with a
// fixed size per step, but never images.
func (s *schema) countSteps(lists []list) int {
	for _, slot := range s.counted {
		l := s.counters[slot]
		if f := &lists[slot]; f.n > 0 {
			if f.n%l.valuesPerRow() != 0 {
				guard.Fail(l.countError(f.n, fmt.Sprintf("a multiple of %d", l.valuesPerRow())))
			}
			return f.n / l.valuesPerRow()
		}
	}
	return 0 // An episode of no steps. The later checks find leaves that contradict this.
}

// countError returns the error about a wrong number of values.
func (l *leaf) countError(got int, want string) error {
	return robocache.Malformed(
		"rlds",
		robocache.Where{"stream": l.key, "column": l.name},
		"the number of values of the record's key",
	).Expected(want, fmt.Sprint(got))
}

// rowCount returns the number of rows of a leaf in a record.
func (l *leaf) rowCount(r *record) int {
	if l.step {
		return r.steps
	}
	return 1
}

// isAbsent reports whether the record has no value of an optional leaf.
func (l *leaf) isAbsent(r *record) bool { return l.optional && r.lists[l.slot].n == 0 }

// isMissing reports whether the record lacks the key of a leaf that must exist.
func (l *leaf) isMissing(r *record) bool {
	return l.lacks(r.steps, func(slot int) bool { return r.lists[slot].found })
}

// lacks reports whether a record with the given number of steps lacks the key of a leaf that must
// exist. found reports whether the record has the key of a slot.
func (l *leaf) lacks(steps int, found func(slot int) bool) bool {
	if l.unsupported != "" || l.optional || found(l.slot) || l.valuesPerRow() == 0 ||
		l.step && steps == 0 {
		return false
	}
	if len(l.lengths) > 0 {
		return !found(l.lengths[0])
	}
	return !l.varies
}

// errMissing returns the error of reading a stream whose key the record lacks.
func (l *leaf) errMissing() error {
	return robocache.Malformed(
		"rlds",
		robocache.Where{"stream": l.key, "column": l.name},
		"the key is not in the record",
	).WithHint("%s", robocache.LackingHint())
}

// checkCounts checks the number of values of a leaf against its shape.
func (l *leaf) checkCounts(r *record) {
	if l.unsupported != "" {
		return
	}
	f := &r.lists[l.slot]
	if f.n > 0 && f.kind != l.listKind() {
		guard.Fail(robocache.Malformed(
			"rlds",
			robocache.Where{"stream": l.key, "column": l.name},
			"",
		).
			Expected(l.listKind().String(), f.kind.String()))
	}
	// a missing key is an error of the streams that need it
	if l.isAbsent(r) || l.isMissing(r) {
		return
	}
	rows := l.rowCount(r)
	for k, slot := range l.lengths {
		g := &r.lists[slot]
		if g.n > 0 && g.kind != intList {
			guard.Fail(robocache.Malformed(
				"rlds",
				robocache.Where{"stream": l.key, "column": l.name},
				"row lengths",
			).Expected(intList.String(), g.kind.String()))
		}
		if k == 0 && g.n != rows {
			guard.Fail(l.countError(g.n, fmt.Sprintf("%d row lengths, one a step", rows)))
		}
	}
	elements := l.valuesPerRow()
	switch {
	case len(l.lengths) > 0:
		return // checked with the lengths at the first use
	case l.varies && !l.step:
		if elements > 0 && f.n%elements != 0 {
			guard.Fail(l.countError(f.n, fmt.Sprintf("a multiple of %d", elements)))
		}
	case l.varies && l.coding == plain:
		// The first dimension of the tensor varies: each step of an episode has the same number of
		// entries.
		if per := rows * elements; per == 0 && f.n > 0 || per > 0 && f.n%per != 0 {
			guard.Fail(l.countError(f.n, fmt.Sprintf("a multiple of %d × %d", rows, elements)))
		}
	case f.n != rows*elements:
		guard.Fail(l.countError(f.n, fmt.Sprintf("%d = %d × %d", rows*elements, rows, elements)))
	}
}

// column returns the values of a numeric leaf. It calls grown with the additional memory.
func (s *schema) column(r *record, i int, grown func(int64)) (*column, error) {
	c, l := &r.columns[i], &s.leaves[i]
	if l.isMissing(r) {
		return nil, l.errMissing()
	}
	c.once.Do(func() {
		// A panic becomes the error of all callers of the column, not only of the first one.
		if c.err = guard.Func("rlds", func() { l.fill(r, c) })(); c.err != nil {
			return
		}
		n := int64(len(c.starts)+len(c.outer)+len(c.inner)) * 8
		if l.dtype != robocache.Float32 || r.lists[l.slot].run == nil {
			n += int64(len(c.rows)) // otherwise they alias the record
		}
		grown(n)
	})
	return c, c.err
}

// fill computes the rows of a leaf.
func (l *leaf) fill(r *record, c *column) {
	f := &r.lists[l.slot]
	rows := l.rowCount(r)
	switch l.coding {
	case plain:
		if l.isAbsent(r) && !l.varies {
			return // Gather returns zeros, and Valid reports the missing values
		}
		c.rows = l.convertNumbers(f)
		l.splitRows(r, c, rows, f.n)
	case textual:
		l.splitRows(r, c, rows, f.n)
	}
}

// splitRows computes where the rows of a ragged leaf begin, and checks the lengths of fixed
// sequences. values is the number of elements.
func (l *leaf) splitRows(r *record, c *column, rows, values int) {
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
			guard.Fail(l.countError(int(lens[k][len(lens[k])-1]), "row lengths as declared"))
		}
	}
	// Lengths of the outer sequence count inner sequences. Those of the innermost count values.
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
			guard.Fail(l.countError(len(lens[1]), fmt.Sprintf("%d inner row lengths", total)))
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
	own := int64(1) // elements of one value of the flat list
	for _, d := range l.shape[len(l.shape)-l.valueDims():] {
		own *= int64(d)
	}
	if total > int64(values) || int64(values) != total*own {
		guard.Fail(l.countError(values, fmt.Sprintf("%d × %d, by the row lengths", total, own)))
	}
	if l.varies {
		c.starts = starts
	}
}

// valueDims returns how many dimensions of a leaf belong to the value itself, and not to fixed
// sequences around it.
func (l *leaf) valueDims() int {
	n := len(l.shape)
	for i, d := range l.fixed {
		if d >= 0 && (i > 0 || !l.varies) {
			n--
		}
	}
	return n
}

// convertNumbers returns the values of a list in the declared dtype. Packed float32 values alias
// the record.
func (l *leaf) convertNumbers(f *list) []byte {
	size := l.dtype.Size()
	if l.dtype == robocache.Float32 && f.run != nil {
		return f.run
	}
	out := make([]byte, 0, f.n*size+8) // each number is appended as 8 bytes, of which size are kept
	if l.dtype.Float() {
		for run := range f.runs() {
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
		guard.Fail(robocache.Malformed(
			"rlds",
			robocache.Where{"stream": l.key, "column": l.name},
			"",
		).
			Expected("values that fit "+l.dtype.String(), fmt.Sprint(bad)))
	}
	return out
}

// appendFloats appends float32 values in the declared type. float64 is widened, because TFDS stores
// only float32.
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
			out = le.AppendUint16(out, roundBFloat16(bits))
		}
	}
	return out
}

// roundBFloat16 rounds to bfloat16, ties to even. Values that are exact in bfloat16 do not change.
func roundBFloat16(bits uint32) uint16 {
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
