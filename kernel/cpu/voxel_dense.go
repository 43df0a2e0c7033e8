package cpu

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// direct says whether points can go straight into the result: whole numbers that need no order, on one thread.
func (v *voxels) direct() bool {
	op := v.op
	return v.threads == 1 && op.Out != nil && !op.Mode.Featured() && op.Outside != kernel.FailOutside && op.Out.Contiguous() && v.plain() != nil
}

// plain is the result's memory where it is in C order, as bytes; nil where it is not aligned.
func (v *voxels) plain() []byte {
	t := v.op.Out
	size := t.DType.Size()
	if t.Len() == 0 {
		return []byte{}
	}
	out := t.Data[t.Base*size : (t.Base+t.Len())*size]
	if size == 4 && elements[uint32](out) == nil {
		return nil
	}
	return out
}

// one is what a cell that is occupied holds.
func one(dt robocache.DType) uint32 {
	if dt == robocache.Float32 {
		return math.Float32bits(1)
	}
	return 1
}

// straight counts on one thread.
func (v *voxels) straight() {
	op, out := v.op, v.plain()
	if !op.Zeroed {
		clear(out)
	}
	words, full := elements[uint32](out), one(op.Out.DType)
	// FailOutside does not come here: there is no error.
	_ = v.visit(v.work[0], &v.stats, func(c chunk, _ int, flat []int64) {
		base := int64(c.entry) * v.cells
		switch {
		case op.Mode == kernel.Count:
			cells := words[base : base+v.cells]
			for _, f := range flat {
				if uint64(f) < uint64(len(cells)) {
					cells[f]++
				}
			}
		case op.Bits:
			for _, f := range flat {
				if f >= 0 {
					out[(base+f)>>3] |= 1 << ((base + f) & 7)
				}
			}
		case op.Out.DType.Size() == 1:
			cells := out[base : base+v.cells]
			for _, f := range flat {
				if uint64(f) < uint64(len(cells)) {
					cells[f] = 1
				}
			}
		default:
			cells := words[base : base+v.cells]
			for _, f := range flat {
				if uint64(f) < uint64(len(cells)) {
					cells[f] = full
				}
			}
		}
	})
}

// dense makes the result from keys in the order of their buckets.
func (v *voxels) dense() {
	t := v.op.Out
	if t.Len() == 0 {
		return
	}
	out := []byte(nil)
	if t.Contiguous() {
		out = v.plain()
	}
	if out == nil {
		v.scattered()
		return
	}
	v.share(func(r *reducer, d int) {
		from, to := int64(d)<<v.shift, min(int64(d+1)<<v.shift, v.l.Total)
		if from >= to {
			return
		}
		if v.op.Mode.Featured() {
			v.features(r, d, from, to, elements[float32](out))
		} else {
			v.whole(v.keys[v.first[d]:v.first[d+1]], from, to, out)
		}
	})
}

// share gives buckets to threads, each with a reducer of its own.
func (v *voxels) share(f func(r *reducer, d int)) {
	spread(v.threads, v.buckets, func() func(int) {
		r := v.reducer.clone()
		return func(d int) { f(r, d) }
	})
}

// whole makes counts or occupancy of the cells from … to-1.
func (v *voxels) whole(keys []uint64, from, to int64, out []byte) {
	op, shift := v.op, v.rowBits
	if op.Bits {
		part := out[from/8 : (to+7)/8]
		if !op.Zeroed {
			clear(part)
		}
		for _, k := range keys {
			i := k>>shift - uint64(from)
			part[i>>3] |= 1 << (i & 7)
		}
		return
	}
	size := int64(op.Out.DType.Size())
	part := out[from*size : to*size]
	if !op.Zeroed {
		clear(part)
	}
	if size == 1 {
		for _, k := range keys {
			part[k>>shift-uint64(from)] = 1
		}
		return
	}
	words, full := elements[uint32](part), one(op.Out.DType)
	for _, k := range keys {
		i := k>>shift - uint64(from)
		if op.Mode == kernel.Count {
			words[i]++
		} else {
			words[i] = full
		}
	}
}

// features makes rows of the cells from … to-1, the empty ones among them.
func (v *voxels) features(r *reducer, d int, from, to int64, out []float32) {
	width := int64(v.l.Features)
	here := v.keys[v.first[d]:v.first[d+1]]
	// In fresh memory few cells are written one by one, and most pages are never touched.
	few := v.op.Zeroed && int64(8*len(here)) < to-from
	if !few && r.sums.fits(to-from) {
		r.sums.cells(out[from*width:to*width], here, from, 4*len(out) >= farBytes)
		return
	}
	at := from
	for keys := r.begin(v.sorted(r, d)); len(keys) > 0; keys = r.begin(keys) {
		for len(keys) > 0 && r.left > 0 {
			flat := int64(keys[0] >> v.rowBits)
			n := run(keys, v.rowBits)
			if flat > at {
				v.empty(out[at*width : flat*width])
			}
			r.reduce(out[flat*width:(flat+1)*width], keys[:n])
			keys = keys[n:]
			at = flat + 1
		}
	}
	v.empty(out[at*width : to*width])
}

// run is how many keys from the first on are of one cell.
func run(keys []uint64, rowBits int) int {
	flat := keys[0] >> rowBits
	n := 1
	for n < len(keys) && keys[n]>>rowBits == flat {
		n++
	}
	return n
}

// empty fills the rows of empty cells.
func (v *voxels) empty(out []float32) {
	switch {
	case v.op.Mode >= kernel.Maximum && math.Float32bits(v.op.Fill) != 0:
		fill := v.op.Fill
		for i := range out {
			out[i] = fill
		}
	case !v.op.Zeroed:
		clear(out)
	}
}

// scattered makes a result that is not in C order, cell by cell, on one thread.
func (v *voxels) scattered() {
	op, t := v.op, v.op.Out
	empty := uint32(0)
	if op.Mode >= kernel.Maximum {
		empty = math.Float32bits(op.Fill)
	}
	size := t.DType.Size()
	put := func(i int, bits uint32) {
		if size == 1 {
			t.Data[i] = byte(bits)
		} else {
			binary.LittleEndian.PutUint32(t.Data[size*i:], bits)
		}
	}
	if !op.Zeroed || empty != 0 {
		t.Elements(func(o int, _ []int) { put(o/size, empty) })
	}
	row := make([]float32, v.l.Features)
	r := v.reducer.clone()
	for d := range v.buckets {
		for keys := r.begin(v.sorted(r, d)); len(keys) > 0; keys = r.begin(keys) {
			for len(keys) > 0 && r.left > 0 {
				n := run(keys, v.rowBits)
				v.put(r, row, keys[:n], put)
				keys = keys[n:]
			}
		}
	}
}

// put writes one cell of a result that is not in C order.
func (v *voxels) put(r *reducer, row []float32, keys []uint64, put func(i int, bits uint32)) {
	op, t, flat := v.op, v.op.Out, int(keys[0]>>v.rowBits)
	if op.Bits {
		r.left -= len(keys)
		t.Data[t.Base+flat>>3*t.Step(0)] |= 1 << (flat & 7)
		return
	}
	axis, at := len(t.Shape)-1, t.Base
	if op.Mode.Featured() {
		axis--
	}
	for ; axis >= 0; axis-- {
		at += flat % t.Shape[axis] * t.Step(axis)
		flat /= t.Shape[axis]
	}
	r.reduce(row, keys)
	switch {
	case op.Mode == kernel.Count:
		put(at, uint32(len(keys)))
	case op.Mode == kernel.Occupancy:
		put(at, one(t.DType))
	default:
		for c, x := range row {
			put(at+c*t.Step(len(t.Shape)-1), math.Float32bits(x))
		}
	}
}
