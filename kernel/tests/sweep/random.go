package sweep

import (
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

// chance returns true with probability p.
func (r sweeper) chance(p float64) bool { return r.Float64() < p }

// upTo returns a random number in 0 … n.
func (r sweeper) upTo(n int) int { return r.IntN(n + 1) }

// layout returns a tensor of the shape with random strides: with gaps, transposed, reversed or
// unaligned. If read is set, the tensor is only read and can be expanded. The caller fills its
// memory.
func (r sweeper) layout(d robocache.DType, read bool, shape ...int) kernel.Tensor {
	t := kernel.Tensor{DType: d, Shape: shape}
	size, lo, hi := d.Size(), 0, 0
	if r.chance(.5) {
		hi = t.Len()
	} else {
		order := make([]int, len(shape)) // axes from the innermost outwards
		for i := range order {
			order[i] = len(shape) - 1 - i
		}
		if r.chance(.3) {
			r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		t.Stride = make([]int, len(shape))
		reach := 1
		for _, axis := range order {
			step := reach
			if r.chance(.2) {
				step *= 1 + r.IntN(3)
			} else if r.chance(.2) {
				step += r.IntN(5)
			}
			if read && r.chance(.1) {
				step = 0 // expanded
			}
			n := max(shape[axis]-1, 0)
			reach = max(reach, step*n+reach)
			if r.chance(.15) {
				step = -step
				lo += step * n
			} else {
				hi += step * n
			}
			t.Stride[axis] = step
		}
		hi++
		t.Base = -lo + r.IntN(3)
	}
	skip := 0
	if r.chance(.3) {
		skip = r.IntN(9)
	}
	buf := make([]byte, skip+(t.Base+hi)*size+r.IntN(4))
	for i := range buf {
		buf[i] = conform.Poison
	}
	t.Data = buf[skip:]
	return t
}

// values fills a tensor's memory, including gaps. Most numbers suit the mode; a few are special
// values.
func (r sweeper) values(t *kernel.Tensor, mode kernel.Mode) {
	size := t.DType.Size()
	hasNonFinite := r.chance(.1)
	for o := 0; o+size <= len(t.Data); o += size {
		x := r.NormFloat64()
		if mode == kernel.Angle {
			x *= 5
		}
		if r.chance(.02) {
			x = pick(r, 0, math.Copysign(0, -1), 1, -1, 1e-40, 65504, 65520, 1e30, 3.4e38)
		}
		if hasNonFinite && r.chance(.05) {
			x = pick(r, math.NaN(), math.Inf(1), math.Inf(-1))
		}
		conform.Put(t, o, x, r.Uint64())
	}
}

// times returns ascending timestamps of an entry, in ns, with some equal ones.
func (r sweeper) times(n int, base int64, step int) []int64 {
	out := make([]int64, n)
	t := base + int64(r.IntN(step))
	for i := range out {
		out[i] = t
		switch {
		case r.chance(.1):
		case r.chance(.05):
			t += int64(step * (2 + r.IntN(20)))
		default:
			t += int64(1 + r.IntN(step))
		}
	}
	return out
}

// targets returns times near the given timestamps: equal to one, half way between two, inside and
// outside. They are usually ascending.
func (r sweeper) targets(n int, timestamps []int64, base int64, step int) []int64 {
	out := make([]int64, n)
	first, last := base, base+int64(step)
	if len(timestamps) > 0 {
		first, last = timestamps[0], timestamps[len(timestamps)-1]
	}
	span := last - first + int64(step)
	for i := range out {
		switch {
		case len(timestamps) > 0 && r.chance(.15):
			out[i] = pick(r, timestamps...)
		case len(timestamps) > 1 && r.chance(.15):
			k := r.IntN(len(timestamps) - 1)
			out[i] = timestamps[k] + (timestamps[k+1]-timestamps[k])/2
		default:
			out[i] = first - int64(step)/2 + r.Int64N(span+int64(step)/2)
		}
	}
	if r.chance(.8) {
		slices.Sort(out)
	}
	return out
}

// clocked writes times into a tensor of one or two axes, in ns or in seconds. at returns time i of
// entry b.
func (r sweeper) clocked(
	d robocache.DType,
	at func(b, i int) int64,
	shape ...int,
) (kernel.Tensor, error) {
	t := r.layout(d, false, shape...)
	if err := t.Elements(func(o int, index []int) error {
		b, i := 0, index[0]
		if len(index) == 2 {
			b, i = index[0], index[1]
		}
		conform.Put(&t, o, float64(at(b, i))*1e-9, uint64(at(b, i)))
		return nil
	}); err != nil {
		return kernel.Tensor{}, err
	}
	return t, nil
}

// rule returns a random mode with a policy and options.
func (r sweeper) rule(cols, step int) kernel.Rule {
	u := kernel.Rule{
		Mode: pick(
			r,
			kernel.Linear,
			kernel.Linear,
			kernel.Linear,
			kernel.Nearest,
			kernel.Previous,
			kernel.Next,
			kernel.Slerp,
			kernel.Angle,
			kernel.Mean,
		),
		Edge: pick(r, kernel.Clamp, kernel.Clamp, kernel.Mask, kernel.Extrapolate),
	}
	if r.chance(.3) {
		u.MaxGap = int64(1 + r.IntN(2*step))
	}
	switch u.Mode {
	case kernel.Mean:
		u.Before, u.After = int64(r.IntN(3*step)), int64(1+r.IntN(3*step))
	case kernel.Angle:
		if r.chance(.5) {
			lo := pick(r, 0, -1, -180.0)
			u.Period, u.Lo = pick(r, 360, 2*math.Pi, 1.0), &lo
		}
	case kernel.Slerp:
		u.Continuous = r.chance(.1)
		if cols%4 != 0 || r.chance(.3) {
			channels := r.Perm(cols)
			for i := 0; i+4 <= cols && len(u.Quats) < 3; i += 4 {
				u.Quats = append(u.Quats, [4]int(channels[i:]))
			}
			if u.Quats == nil {
				u.Mode = kernel.Linear
			}
		}
	}
	return u
}

// epilogue returns a random epilogue for cols columns of batch entries.
func (r sweeper) epilogue(cols, batch int) (kernel.Epilogue, error) {
	e := kernel.Epilogue{Unit: r.chance(.2)}
	if r.chance(.6) {
		n, plane := cols, 1
		if cols%3 == 0 && r.chance(.5) {
			n, plane = 3, pick(r, 1, cols/3)
		}
		a, b := make([]float64, n), make([]float64, n)
		for i := range a {
			a[i], b[i] = r.NormFloat64(), math.Abs(r.NormFloat64())+.1
			if r.chance(.05) {
				b[i] = 0
			}
		}
		e.Plane, e.Norm = plane, kernel.NewMeanStd(a, b)
		if r.chance(.4) {
			e.Norm.Kind = kernel.MinMax
		}
	}
	if r.chance(.3) {
		e.Clip = &[2]float32{-1, float32(1 + r.IntN(2))}
	}
	if r.chance(.3) {
		a := &kernel.Augment{
			Seed:  r.Uint64(),
			Epoch: r.Uint64() >> uint(r.IntN(64)),
			Op:    r.Uint32(),
		}
		if r.chance(.6) {
			a.Noise = r.Float32()
		}
		if r.chance(.4) {
			a.Dropout = r.Float32()
		}
		if r.chance(.6) {
			a.ScaleLo = .5
			a.ScaleHi = .5 + r.Float32()
		}
		if r.chance(.7) {
			t := r.layout(robocache.Int64, false, batch)
			if err := t.Elements(func(o int, _ []int) error {
				conform.Put(&t, o, 0, r.Uint64()>>uint(r.IntN(64)))
				return nil
			}); err != nil {
				return kernel.Epilogue{}, err
			}
			a.Samples = &t
		}
		e.Augment = a
	}
	return e, nil
}
