package cpu

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache/kernel"
)

// littleEndian reports whether memory has the byte order of tensors. If not, the reference runs.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// runVoxelize sorts points into cells. Each point becomes a key (flat index, row). The keys are
// sorted by cell, bucket by bucket. One thread handles each bucket in its cache, and float64 sums
// stay in the order of the points. A count or an occupancy on one thread needs no order, so it is
// written directly into the result.
func (b *Backend) runVoxelize(given *kernel.VoxelOp) error {
	op, finish := plainResults(given)
	l, err := op.Layout()
	if err != nil {
		return err
	}
	v := &voxelRun{op: op, layout: l, cells: l.Cells}
	if err := v.splitPoints(b.threads); err != nil {
		return err
	}
	if !littleEndian || bits.Len64(uint64(l.Total))+v.rowBits > 64 {
		return kernel.Reference{}.Run(given)
	}
	v.source.openPoints(&op.Points)
	v.reducer.openFeatures(op, l, v.rowBits)
	s := scratchPool.Get().(*voxelScratch)
	defer scratchPool.Put(s)
	v.scratch = s
	if v.canCountDirectly() {
		v.countDirectly()
	} else {
		if err := v.makeKeys(); err != nil {
			return err
		}
		v.scatterKeys()
		if op.Coords != nil {
			v.writeSparse()
		} else {
			v.writeDense()
		}
	}
	v.writeTotals()
	return finish(v.found)
}

// voxelRun is the state of one VoxelOp while it runs.
type voxelRun struct {
	op      *kernel.VoxelOp
	layout  *kernel.VoxelLayout
	cells   int64 // number of cells of one entry
	threads int
	points  int // total number of points
	work    [][]rowChunk
	rowBits int // a key is flat<<rowBits | row, where rows are numbered through all entries
	source  pointSource
	reducer reducer
	scratch *voxelScratch
	stats   [3]int64
	keys    []uint64 // keys, sorted by bucket
	// spare is scratch memory for sorting. It is as long as keys; a bucket uses the same indices in
	// both.
	spare   []uint64
	shift   int // a key's bucket is key >> (shift + rowBits)
	buckets int
	first   []int // index of the first key of each bucket, and the number of keys at the end
	found   int64
}

// rowChunk is a range of rows of one entry.
type rowChunk struct {
	entry, from, to int
	keys            int // first index of its keys
}

// pointNumber returns the number of a point among the points of all entries.
func (v *voxelRun) pointNumber(entry, row int) int {
	if len(v.op.Points.Shape) == 3 {
		row += entry * v.layout.Rows
	}
	return row
}

// blockPoints is the number of points that one step handles at a time.
const blockPoints = 512

// minPointsPerThread is the smallest number of points for which a thread is started. Tests change
// it.
var minPointsPerThread = 8192

// splitPoints distributes the points over the threads, in order.
func (v *voxelRun) splitPoints(threads int) error {
	var all []rowChunk
	for b := range v.layout.Batch {
		from, to, err := v.op.Entry(b)
		if err != nil {
			return err
		}
		if to > from {
			all = append(all, rowChunk{b, from, to, v.points})
			v.points += to - from
		}
		v.rowBits = max(v.rowBits, bits.Len(uint(max(v.pointNumber(b, to)-1, 0))))
	}
	v.threads = max(1, min(threads, v.points/minPointsPerThread))
	v.work = dealChunks(all, v.points, v.threads)
	return nil
}

// dealChunks gives each thread an equal share of the points, in order. The last thread gets the
// rest.
func dealChunks(all []rowChunk, points, threads int) [][]rowChunk {
	work := make([][]rowChunk, threads)
	share := (points + threads - 1) / threads
	thread := 0
	left := share // points that the thread still gets
	for _, c := range all {
		for c.from < c.to {
			if left == 0 && thread+1 < threads {
				thread++
				left = share
			}
			n := c.to - c.from
			if thread+1 < threads {
				n = min(n, left)
			}
			work[thread] = append(work[thread], rowChunk{c.entry, c.from, c.from + n, c.keys})
			c.from += n
			c.keys += n
			left -= n
		}
	}
	return work
}

// voxelScratch is memory that calls reuse.
type voxelScratch struct {
	a, b  []uint64
	hist  []int
	first []int
	count []int
}

var scratchPool = sync.Pool{New: func() any { return new(voxelScratch) }}

// growScratch returns a slice of n elements with undefined values.
func growScratch[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n+n/8)
	}
	return (*s)[:n]
}

// writeTotals writes the results that are known only at the end.
func (v *voxelRun) writeTotals() {
	if t := v.op.Found; t != nil {
		putInt64(t, 0, v.found)
	}
	if t := v.op.Stats; t != nil {
		for i, n := range v.stats {
			putInt64(t, i, n)
		}
	}
}

// putInt64 writes n to element i of an int64 tensor with one axis.
func putInt64(t *kernel.Tensor, i int, n int64) {
	binary.LittleEndian.PutUint64(t.Data[8*(t.Base+i*t.Step(0)):], uint64(n))
}

// sortKeys sorts distinct keys by their bits from bit to top-1. Keys that are equal in these bits
// must already be in order. It uses tmp as scratch memory, which must be as long as keys.
func sortKeys(keys, tmp []uint64, bit, top int, at *[1 << maxDigitBits]uint32) {
	n := len(keys)
	if n < 2 {
		return
	}
	if n <= 20 { // insertion sort
		for i := 1; i < n; i++ {
			k := keys[i]
			j := i
			for ; j > 0 && keys[j-1] > k; j-- {
				keys[j] = keys[j-1]
			}
			keys[j] = k
		}
		return
	}
	width := top - bit
	if n < 64 && width > maxDigitBits {
		slices.Sort(keys)
		return
	}
	// A digit is no wider than the number of keys justifies.
	most := min(maxDigitBits, bits.Len(uint(n))+1)
	passes := (width + most - 1) / most
	src := keys
	dst := tmp[:n]
	for p := range passes {
		lo := bit + width*p/passes
		hi := bit + width*(p+1)/passes
		radixPass(dst, src, lo, hi-lo, at)
		src, dst = dst, src
	}
	if passes&1 == 1 {
		copy(keys, tmp[:n])
	}
}

// maxDigitBits is the maximal number of bits in a digit.
const maxDigitBits = 11

// radixPass copies src to dst, sorted by the width bits from bit lo on. It is one stable pass of a
// radix sort. at is scratch memory. The constant masks change no value: they let the compiler omit
// checks of shifts and of indices.
func radixPass(dst, src []uint64, lo, width int, at *[1 << maxDigitBits]uint32) {
	mask := uint64(1)<<width - 1
	clear(at[:mask+1])
	for _, k := range src {
		at[(k>>(lo&63))&mask&(1<<maxDigitBits-1)]++
	}
	sum := uint32(0)
	for i := range at[:mask+1] {
		at[i], sum = sum, sum+at[i]
	}
	for _, k := range src {
		d := (k >> (lo & 63)) & mask & (1<<maxDigitBits - 1)
		dst[at[d]] = k
		at[d]++
	}
}
