package cpu

import "math/bits"

// keysPerBucket is the approximate number of keys in a bucket.
var keysPerBucket = 512

// makeKeys computes the keys of all points and counts them by bucket, separately for each thread.
// Each thread handles its own rows. A bucket is a range of 2^v.shift cells.
func (v *voxelRun) makeKeys() error {
	v.scratch.a = growScratch(&v.scratch.a, v.points)
	v.scratch.b = growScratch(&v.scratch.b, v.points)
	// The number of buckets keeps a bucket's keys in the fastest cache, and also its cells if the
	// result is dense.
	width := bits.Len64(uint64(max(v.layout.Total-1, 0))) // bits of a flat index
	bucketBits := min(11, bits.Len(uint(v.points/keysPerBucket)), width)
	if v.threads == 1 && v.points < 64*keysPerBucket {
		bucketBits = 0
	}
	if v.op.Bits {
		bucketBits = min(bucketBits, width-3) // two buckets must not share a byte
	}
	bucketBits = max(bucketBits, 0)
	v.shift = width - bucketBits
	v.buckets = 1 << bucketBits
	hist := growScratch(&v.scratch.hist, v.threads*v.buckets)
	clear(hist)
	errs := make([]error, v.threads)
	stats := make([][3]int64, v.threads)
	v.scratch.count = growScratch(&v.scratch.count, v.threads)
	count := v.scratch.count
	runThreads(v.threads, func(t int) {
		count[t] = 0
		if len(v.work[t]) == 0 {
			return
		}
		h := hist[t*v.buckets : (t+1)*v.buckets]
		keys := v.scratch.a[v.work[t][0].keys:]
		n := 0
		shift := v.shift
		rowBits := v.rowBits
		errs[t] = v.visitBlocks(v.work[t], &stats[t], func(c rowChunk, row int, flat []int64) {
			base := int64(c.entry) * v.cells
			row = v.pointNumber(c.entry, row)
			for i, f := range flat {
				if f < 0 {
					continue
				}
				k := uint64(base + f)
				h[k>>(shift&63)]++
				keys[n] = k<<(rowBits&63) | uint64(row+i)
				n++
			}
		})
		count[t] = n
	})
	for t, err := range errs {
		if err != nil {
			return err
		}
		for i, n := range stats[t] {
			v.stats[i] += n
		}
	}
	return nil
}

// scatterKeys sorts the keys by bucket: it turns the counts into positions and copies each key to
// its position. Within a bucket the keys keep the order of the points.
func (v *voxelRun) scatterKeys() {
	hist := v.scratch.hist[:v.threads*v.buckets]
	v.first = growScratch(&v.scratch.first, v.buckets+1)
	v.scratch.first = v.first
	sum := 0
	for d := range v.buckets {
		v.first[d] = sum
		for t := range v.threads {
			i := t*v.buckets + d
			hist[i], sum = sum, sum+hist[i]
		}
	}
	v.first[v.buckets] = sum
	if v.buckets == 1 && v.threads == 1 {
		v.keys, v.spare = v.scratch.a[:sum], v.scratch.b[:sum]
		return
	}
	runThreads(v.threads, func(t int) {
		if len(v.work[t]) == 0 {
			return
		}
		at := hist[t*v.buckets : (t+1)*v.buckets]
		from := v.work[t][0].keys
		shift := v.shift + v.rowBits
		dst := v.scratch.b
		for _, k := range v.scratch.a[from : from+v.scratch.count[t]] {
			d := k >> (shift & 63)
			dst[at[d]] = k
			at[d]++
		}
	})
	v.keys, v.spare = v.scratch.b[:sum], v.scratch.a[:sum]
}

// sortBucket returns the keys of bucket d, sorted by cell.
func (v *voxelRun) sortBucket(r *reducer, d int) []uint64 {
	from := v.first[d]
	to := v.first[d+1]
	keys := v.keys[from:to]
	sortKeys(keys, v.spare[from:to], v.rowBits, v.rowBits+v.shift, r.digits)
	return keys
}
