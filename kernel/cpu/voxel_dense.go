package cpu

import (
	"math"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// direct says whether points can go straight into the result: whole numbers that need no order, on
// one thread.
func (v *voxels) direct() bool {
	op := v.op
	return v.threads == 1 && op.Out != nil && !op.Mode.Featured() &&
		op.Outside != kernel.FailOutside &&
		(!op.Bits || v.l.Batch == 1)
}

// memory is a result's, in C order.
func memory(t *kernel.Tensor) []byte {
	size := t.DType.Size()
	return t.Data[t.Base*size : (t.Base+t.Len())*size]
}

// plainResults is the op with results in C order at multiples of their elements, and what brings
// those to where they belong: most lie so already.
func plainResults(op *kernel.VoxelOp) (_ *kernel.VoxelOp, finish func(found int64) error) {
	p, finish := *op, func(int64) error {
		return nil
	}
	for _, held := range []**kernel.Tensor{&p.Out, &p.Coords, &p.Rows, &p.Counts} {
		t := *held
		if t == nil ||
			t.Contiguous() && uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))%8 == 0 &&
				t.Base*t.DType.Size()%8 == 0 {
			continue
		}
		fresh := &kernel.Tensor{
			DType: t.DType,
			Shape: t.Shape,
			Data:  make([]byte, t.Len()*t.DType.Size()),
		}
		*held, p.Zeroed = fresh, p.Zeroed || held == &p.Out
		rest := finish
		finish = func(found int64) error {
			at, size := 0, t.DType.Size()
			if err := t.Elements(func(o int, index []int) error {
				if held == &p.Out || int64(index[0]) < found {
					copy(t.Data[o:o+size], fresh.Data[at:])
				}
				at += size
				return nil
			}); err != nil {
				return err
			}
			return rest(found)
		}
	}
	return &p, finish
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
	out := memory(v.op.Out)
	if !v.op.Zeroed {
		clear(out)
	}
	size := v.cells * int64(v.op.Out.DType.Size()) // of an entry
	if v.op.Bits {
		size = int64(len(out))
	}
	// FailOutside does not come here: there is no error.
	_ = v.visit(v.work[0], &v.stats, func(c chunk, _ int, flat []int64) {
		v.mark(
			unsafe.Slice((*uint64)(unsafe.Pointer(&flat[0])), len(flat)),
			0,
			0,
			out[int64(c.entry)*size:int64(c.entry+1)*size],
		)
	})
}

// dense makes the result from keys in the order of their buckets.
func (v *voxels) dense() {
	if v.op.Out.Len() == 0 {
		return
	}
	out := memory(v.op.Out)
	v.share(func(r *reducer, d int) {
		from, to := int64(d)<<v.shift, min(int64(d+1)<<v.shift, v.l.Total)
		if from >= to {
			return
		}
		if v.op.Mode.Featured() {
			v.features(r, d, from, to, elements[float32](out))
			return
		}
		part := out[from/8 : (to+7)/8] // of bits
		if !v.op.Bits {
			size := int64(v.op.Out.DType.Size())
			part = out[from*size : to*size]
		}
		if !v.op.Zeroed {
			clear(part)
		}
		v.mark(v.keys[v.first[d]:v.first[d+1]], v.rowBits, uint64(from), part)
	})
}

// share gives buckets to threads, each with a reducer of its own.
func (v *voxels) share(f func(r *reducer, d int)) {
	spread(v.threads, v.buckets, func() func(int) {
		r := v.reducer.clone()
		return func(d int) { f(r, d) }
	})
}

// mark counts or occupies the cells of keys, of which the first is out's; a key beyond them is
// none.
func (v *voxels) mark(keys []uint64, shift int, first uint64, out []byte) {
	op, words := v.op, []uint32(nil)
	if op.Out.DType.Size() == 4 {
		words = elements[uint32](out)
	}
	switch full := one(op.Out.DType); {
	case op.Bits:
		for _, k := range keys {
			if i := k>>(shift&63) - first; i>>3 < uint64(len(out)) {
				out[i>>3] |= 1 << (i & 7)
			}
		}
	case op.Mode == kernel.Count && shift == 0 && first == 0:
		// points far apart: what stands between two cache misses is time
		for _, i := range keys {
			if i < uint64(len(words)) {
				words[i]++
			}
		}
	case words == nil && shift == 0 && first == 0:
		for _, i := range keys {
			if i < uint64(len(out)) {
				out[i] = 1
			}
		}
	case op.Mode == kernel.Count:
		for _, k := range keys {
			if i := k>>(shift&63) - first; i < uint64(len(words)) {
				words[i]++
			}
		}
	case words != nil:
		for _, k := range keys {
			if i := k>>(shift&63) - first; i < uint64(len(words)) {
				words[i] = full
			}
		}
	default:
		for _, k := range keys {
			if i := k>>(shift&63) - first; i < uint64(len(out)) {
				out[i] = 1
			}
		}
	}
}

// features makes rows of the cells from … to-1, the empty ones among them.
func (v *voxels) features(r *reducer, d int, from, to int64, out []float32) {
	width := int64(v.l.Features)
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
