package cpu

import "math/bits"

// bucketed is about how many keys a bucket has.
var bucketed = 512

// produce makes the keys of all points, each thread those of its own run, and counts them by
// bucket.
func (v *voxels) produce() error {
	// sumRuns looks at keys ahead of those that it adds.
	v.s.a = grow(&v.s.a, v.points+64)[:v.points]
	v.s.b = grow(&v.s.b, v.points+64)[:v.points]
	// As many buckets as keep a bucket's keys in the fastest cache, and its cells too where there
	// is a dense result.
	width := bits.Len64(uint64(max(v.l.Total-1, 0)))
	top := min(11, bits.Len(uint(v.points/bucketed)), width)
	if v.threads == 1 && v.points < 64*bucketed {
		top = 0
	}
	if v.op.Bits {
		top = min(top, width-3) // no two buckets share a byte
	}
	top = max(top, 0)
	v.shift = width - top
	v.buckets = 1 << top
	hist := grow(&v.s.hist, v.threads*v.buckets)
	clear(hist)
	errs := make([]error, v.threads)
	stats := make([][3]int64, v.threads)
	v.s.count = grow(&v.s.count, v.threads)
	count := v.s.count
	each(v.threads, func(t int) {
		count[t] = 0
		if len(v.work[t]) == 0 {
			return
		}
		h := hist[t*v.buckets : (t+1)*v.buckets]
		keys := v.s.a[v.work[t][0].keys:]
		n, shift, rowBits := 0, v.shift, v.rowBits
		errs[t] = v.visit(v.work[t], &stats[t], func(c chunk, row int, flat []int64) {
			base := int64(c.entry) * v.cells
			row = v.row(c.entry, row)
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

// scatter brings the keys into the order of their buckets; within one they stay in the order of the
// points.
func (v *voxels) scatter() {
	hist := v.s.hist[:v.threads*v.buckets]
	v.first = grow(&v.s.first, v.buckets+1)
	v.s.first = v.first
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
		v.keys, v.spare = v.s.a[:sum], v.s.b[:sum]
		return
	}
	each(v.threads, func(t int) {
		if len(v.work[t]) == 0 {
			return
		}
		at := hist[t*v.buckets : (t+1)*v.buckets]
		from := v.work[t][0].keys
		shift, dst := v.shift+v.rowBits, v.s.b
		for _, k := range v.s.a[from : from+v.s.count[t]] {
			d := k >> (shift & 63)
			dst[at[d]] = k
			at[d]++
		}
	})
	v.keys, v.spare = v.s.b[:sum], v.s.a[:sum]
}

// sorted gives the keys of a bucket in order.
func (v *voxels) sorted(r *reducer, d int) []uint64 {
	from, to := v.first[d], v.first[d+1]
	keys := v.keys[from:to]
	sortKeys(keys, v.spare[from:to], v.rowBits, v.rowBits+v.shift, r.digits)
	return keys
}
