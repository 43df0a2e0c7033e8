package cpu

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache/kernel"
)

// little says that memory holds numbers as tensors do; elsewhere the reference runs.
var little = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// voxelize sorts points into cells. Points become keys (flat index, row), and the keys are brought
// into the order of the cells bucket by bucket, so that each bucket is worked on by one thread in
// its cache and float64 sums stay in the order of the points. A count or an occupancy on one thread
// needs no order: it goes straight into the result.
func (b *Backend) voxelize(given *kernel.VoxelOp) error {
	op, finish := plainResults(given)
	l, err := op.Layout()
	if err != nil {
		return err
	}
	v := &voxels{op: op, l: l, cells: l.Cells}
	if err := v.chunk(b.threads); err != nil {
		return err
	}
	if !little || bits.Len64(uint64(l.Total))+v.rowBits > 64 {
		return kernel.Reference{}.Run(given)
	}
	v.source.open(&op.Points)
	v.reducer.open(op, l, v.rowBits)
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	v.s = s
	if v.direct() {
		v.straight()
	} else {
		if err := v.produce(); err != nil {
			return err
		}
		v.scatter()
		if op.Coords != nil {
			v.sparse()
		} else {
			v.dense()
		}
	}
	v.finish()
	if err := finish(v.found); err != nil {
		return err
	}
	return nil
}

// voxels is one call.
type voxels struct {
	op      *kernel.VoxelOp
	l       *kernel.VoxelLayout
	cells   int64 // of one entry
	threads int
	points  int // in all
	work    [][]chunk
	rowBits int // a key is flat<<rowBits | row; rows of all entries are numbered as one
	source  source
	reducer reducer
	s       *scratch
	stats   [3]int64
	keys    []uint64 // sorted by bucket
	spare   []uint64 // as many: a bucket's keys may be sorted through the same places of it
	shift   int      // a key's bucket is key >> (shift + rowBits)
	buckets int
	first   []int // where each bucket's keys begin; one more than there are buckets
	found   int64
}

// chunk is a run of rows of one entry.
type chunk struct {
	entry, from, to int
	keys            int // where its keys may begin
}

// row numbers the points of all entries.
func (v *voxels) row(entry, row int) int {
	if len(v.op.Points.Shape) == 3 {
		row += entry * v.l.Rows
	}
	return row
}

// block is how many points are taken through one step at a time.
const block = 512

// apiece is the least number of points that a thread is worth. Tests change it.
var apiece = 8192

// chunk spreads the points over the threads, in order.
func (v *voxels) chunk(threads int) error {
	var all []chunk
	for b := range v.l.Batch {
		from, to, err := v.op.Entry(b)
		if err != nil {
			return err
		}
		if to > from {
			all = append(all, chunk{b, from, to, v.points})
			v.points += to - from
		}
		v.rowBits = max(v.rowBits, bits.Len(uint(max(v.row(b, to)-1, 0))))
	}
	v.threads = max(1, min(threads, v.points/apiece))
	v.work = make([][]chunk, v.threads)
	share := (v.points + v.threads - 1) / max(v.threads, 1)
	t, room := 0, share
	for _, c := range all {
		for c.from < c.to {
			if room == 0 && t+1 < v.threads {
				t, room = t+1, share
			}
			n := c.to - c.from
			if t+1 < v.threads {
				n = min(n, room)
			}
			v.work[t] = append(v.work[t], chunk{c.entry, c.from, c.from + n, c.keys})
			c.from += n
			c.keys += n
			room -= n
		}
	}
	return nil
}

// scratch is memory that calls hand on to each other.
type scratch struct {
	a, b  []uint64
	hist  []int
	first []int
	count []int
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// grow gives a slice of n elements whose values do not matter.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n+n/8)
	}
	return (*s)[:n]
}

// finish writes what is known at the end.
func (v *voxels) finish() {
	if t := v.op.Found; t != nil {
		put64(t, 0, v.found)
	}
	if t := v.op.Stats; t != nil {
		for i, n := range v.stats {
			put64(t, i, n)
		}
	}
}

func put64(t *kernel.Tensor, i int, n int64) {
	binary.LittleEndian.PutUint64(t.Data[8*(t.Base+i*t.Step(0)):], uint64(n))
}

// sortKeys sorts keys, which are all different, by their bits below top and from bit on; what is
// equal there is in order already. It uses as much of tmp.
func sortKeys(keys, tmp []uint64, bit, top int, at *[1 << widest]uint32) {
	n := len(keys)
	if n < 2 {
		return
	}
	if n <= 20 {
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
	if n < 64 && width > widest {
		slices.Sort(keys)
		return
	}
	// Digits no wider than what the number of keys pays for.
	most := min(widest, bits.Len(uint(n))+1)
	passes := (width + most - 1) / most
	src, dst := keys, tmp[:n]
	for p := range passes {
		lo, hi := bit+width*p/passes, bit+width*(p+1)/passes
		digit(dst, src, lo, hi-lo, at)
		src, dst = dst, src
	}
	if passes&1 == 1 {
		copy(keys, tmp[:n])
	}
}

// widest is the most bits of a digit.
const widest = 11

// digit is one stable pass of a radix sort.
func digit(dst, src []uint64, lo, width int, at *[1 << widest]uint32) {
	mask := uint64(1)<<width - 1
	clear(at[:mask+1])
	for _, k := range src {
		at[(k>>(lo&63))&mask&(1<<widest-1)]++
	}
	sum := uint32(0)
	for i := range at[:mask+1] {
		at[i], sum = sum, sum+at[i]
	}
	for _, k := range src {
		d := (k >> (lo & 63)) & mask & (1<<widest - 1)
		dst[at[d]] = k
		at[d]++
	}
}
