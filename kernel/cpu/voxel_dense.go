package cpu

import (
	"math"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// canCountDirectly reports whether points can be counted directly in the result. The results must
// be whole numbers that do not depend on an order, and there must be one thread.
func (v *voxelRun) canCountDirectly() bool {
	op := v.op
	isDense := op.Out != nil && (!op.Bits || v.layout.Batch == 1)
	needsOrder := op.Mode.Featured() || op.Outside == kernel.FailOutside
	return v.threads == 1 && isDense && !needsOrder
}

// resultBytes returns the memory of a result, which must be in C order.
func resultBytes(t *kernel.Tensor) []byte {
	size := t.DType.Size()
	return t.Data[t.Base*size : (t.Base+t.Len())*size]
}

// plainResults returns the operation with results in C order at aligned addresses. finish copies
// them to the original results. Most results need no copy.
func plainResults(op *kernel.VoxelOp) (_ *kernel.VoxelOp, finish func(found int64) error) {
	p := *op
	finish = func(int64) error {
		return nil
	}
	for _, held := range []**kernel.Tensor{&p.Out, &p.Coords, &p.Rows, &p.Counts} {
		t := *held
		if t == nil {
			continue
		}
		address := uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))
		isAligned := address%8 == 0 && t.Base*t.DType.Size()%8 == 0
		if isAligned && t.Contiguous() {
			continue
		}
		fresh := &kernel.Tensor{
			DType: t.DType,
			Shape: t.Shape,
			Data:  make([]byte, t.Len()*t.DType.Size()),
		}
		*held = fresh
		p.Zeroed = p.Zeroed || held == &p.Out
		rest := finish
		finish = func(found int64) error {
			at := 0
			size := t.DType.Size()
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

// occupiedValue returns the bits of an occupied cell.
func occupiedValue(dt robocache.DType) uint32 {
	if dt == robocache.Float32 {
		return math.Float32bits(1)
	}
	return 1
}

// countDirectly counts points on one thread.
func (v *voxelRun) countDirectly() {
	out := resultBytes(v.op.Out)
	if !v.op.Zeroed {
		clear(out)
	}
	size := v.cells * int64(v.op.Out.DType.Size()) // bytes of one entry
	if v.op.Bits {
		size = int64(len(out))
	}
	// There is no error, because canCountDirectly excludes FailOutside.
	_ = v.visitBlocks(v.work[0], &v.stats, func(c rowChunk, _ int, flat []int64) {
		v.markCells(
			unsafe.Slice((*uint64)(unsafe.Pointer(&flat[0])), len(flat)),
			0,
			0,
			out[int64(c.entry)*size:int64(c.entry+1)*size],
		)
	})
}

// writeDense computes the result from keys sorted by bucket.
func (v *voxelRun) writeDense() {
	if v.op.Out.Len() == 0 {
		return
	}
	out := resultBytes(v.op.Out)
	v.spreadBuckets(func(r *reducer, d int) {
		from := int64(d) << v.shift
		to := min(int64(d+1)<<v.shift, v.layout.Total)
		if from >= to {
			return
		}
		if v.op.Mode.Featured() {
			v.featureRows(r, d, from, to, castSlice[float32](out))
			return
		}
		part := out[from/8 : (to+7)/8] // bytes, under Bits
		if !v.op.Bits {
			size := int64(v.op.Out.DType.Size())
			part = out[from*size : to*size]
		}
		if !v.op.Zeroed {
			clear(part)
		}
		v.markCells(v.keys[v.first[d]:v.first[d+1]], v.rowBits, uint64(from), part)
	})
}

// spreadBuckets calls f for each bucket, on several threads. Each thread has its own reducer.
func (v *voxelRun) spreadBuckets(f func(r *reducer, d int)) {
	spreadIndices(v.threads, v.buckets, func() func(int) {
		r := v.reducer.clone()
		return func(d int) { f(r, d) }
	})
}

// markCells counts or occupies the cells of keys. out starts at cell first; keys outside out are
// ignored.
func (v *voxelRun) markCells(keys []uint64, shift int, first uint64, out []byte) {
	op := v.op
	words := []uint32(nil)
	if op.Out.DType.Size() == 4 {
		words = castSlice[uint32](out)
	}
	switch full := occupiedValue(op.Out.DType); {
	case op.Bits:
		for _, k := range keys {
			if i := k>>(shift&63) - first; i>>3 < uint64(len(out)) {
				out[i>>3] |= 1 << (i & 7)
			}
		}
	case op.Mode == kernel.Count && shift == 0 && first == 0:
		// This loop is kept minimal: random points cause a cache miss each, and extra work between
		// the misses costs time.
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

// featureRows computes the rows of cells from … to-1, including the empty ones.
func (v *voxelRun) featureRows(r *reducer, d int, from, to int64, out []float32) {
	width := int64(v.layout.Features)
	at := from
	for keys := r.gatherCells(v.sortBucket(r, d)); len(keys) > 0; keys = r.gatherCells(keys) {
		for len(keys) > 0 && r.left > 0 {
			flat := int64(keys[0] >> v.rowBits)
			n := countSameCell(keys, v.rowBits)
			if flat > at {
				v.fillEmpty(out[at*width : flat*width])
			}
			r.reduceCell(out[flat*width:(flat+1)*width], keys[:n])
			keys = keys[n:]
			at = flat + 1
		}
	}
	v.fillEmpty(out[at*width : to*width])
}

// countSameCell returns how many keys at the beginning belong to one cell.
func countSameCell(keys []uint64, rowBits int) int {
	flat := keys[0] >> rowBits
	n := 1
	for n < len(keys) && keys[n]>>rowBits == flat {
		n++
	}
	return n
}

// fillEmpty fills the rows of empty cells.
func (v *voxelRun) fillEmpty(out []float32) {
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
