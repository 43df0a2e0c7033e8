package kernel

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"sort"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// FuzzFuse compares linear resampling of float32 with exact rational arithmetic. The value must be
// within the contract's bound, and the validity must be equal. It also checks properties that hold
// for any numbers: target rows are independent, an entry gives the same result alone and in a
// batch, and unordered timestamps are rejected.
func FuzzFuse(f *testing.F) {
	f.Add(
		[]byte{3, 10, 0, 20},
		[]byte{0, 5, 10, 11, 40, 200},
		[]byte{1, 2, 3, 4, 0xff, 0x7f, 0x80, 0x3f, 0, 0, 0x80, 0x7f},
		int64(0),
		uint8(1),
		uint8(0),
	)
	f.Add(
		[]byte{0, 0, 1},
		[]byte{0},
		[]byte{9},
		int64(1_760_000_000_000_000_000),
		uint8(0),
		uint8(30),
	)
	f.Add([]byte{}, []byte{1, 2}, []byte{}, int64(-5), uint8(2), uint8(0))
	f.Fuzz(func(t *testing.T, gaps, aims, bits []byte, base int64, edge, gap uint8) {
		if len(gaps) > 60 || len(aims) > 60 || base >= MaxTime-1<<14 || base <= -MaxTime+1<<14 {
			return
		}
		const D = 2
		timestamps, now, ordered := make([]int64, len(gaps)), base, true
		for i, g := range gaps {
			if g == 255 { // the timestamp decreases
				now -= 3
				ordered = ordered && i == 0
			} else {
				now += int64(g)
			}
			timestamps[i] = now
		}
		targets := make([]int64, len(aims))
		for i, a := range aims {
			targets[i] = base + int64(a)*int64(len(gaps)+1)/4 - 20
		}
		values := Tensor{
			DType: robocache.Float32,
			Shape: []int{1, len(gaps), D},
			Data:  make([]byte, 4*len(gaps)*D),
		}
		for i := range values.Data {
			if len(bits) > 0 {
				values.Data[i] = bits[i%len(bits)] + byte(i/len(bits))
			}
		}
		rule := Rule{Edge: Edge(edge % 3), MaxGap: int64(gap)}
		out := zeros(robocache.Float32, 1, len(aims), D)
		valid := zeros(robocache.Uint8, 1, len(aims), 1)
		err := Reference{}.Run(
			&FuseOp{
				Series:  []Series{{Values: values, Times: int64Tensor(timestamps...), Rule: rule}},
				Targets: int64Tensor(targets...),
				Out:     *out,
				Valid:   valid,
			},
		)
		if !ordered {
			if !errors.Is(err, robocache.ErrMalformed) {
				t.Fatalf("timestamps %v: %v", timestamps, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range targets {
			// The row alone, and in a batch of two expanded entries.
			alone, flag := zeros(robocache.Float32, 1, 1, D), zeros(robocache.Uint8, 1, 1, 1)
			if err := (Reference{}).Run(
				&FuseOp{
					Series: []Series{
						{Values: values, Times: int64Tensor(timestamps...), Rule: rule},
					},
					Targets: int64Tensor(at),
					Out:     *alone,
					Valid:   flag,
				},
			); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(alone.Data, out.Data[4*D*i:4*D*(i+1)]) ||
				flag.Data[0] != valid.Data[i] {
				t.Fatalf("target %d at %d is another alone", i, at)
			}
			k := sort.Search(len(timestamps), func(j int) bool { return timestamps[j] > at }) - 1
			inside := k >= 0 && (timestamps[k] == at || k+1 < len(timestamps))
			between := inside && timestamps[k] != at
			ok := inside && !(between && gap > 0 && timestamps[k+1]-timestamps[k] > int64(gap))
			if ok != (valid.Data[i] == 1) {
				t.Fatalf("target %d at %d among %v: valid %d", i, at, timestamps, valid.Data[i])
			}
			if !inside {
				continue
			}
			for c := range D {
				got, v0 := read(out.Data, D*i+c), read(values.Data, D*k+c)
				switch {
				case !ok && rule.Edge == Mask:
					if math.Float32bits(got) != 0 {
						t.Fatalf("masked row %d: %v", i, got)
					}
				case !between:
					if math.Float32bits(got) != math.Float32bits(v0) {
						t.Fatalf(
							"exact hit %d: %x, want %x",
							i,
							math.Float32bits(got),
							math.Float32bits(v0),
						)
					}
				default:
					within(
						t,
						got,
						v0,
						read(values.Data, D*(k+1)+c),
						at-timestamps[k],
						timestamps[k+1]-timestamps[k],
					)
				}
			}
		}
		two := values
		two.Shape, two.Stride = []int{2, len(gaps), D}, []int{0, D, 1}
		both := zeros(robocache.Float32, 2, len(aims), D)
		if err := (Reference{}).Run(
			&FuseOp{
				Series:  []Series{{Values: two, Times: int64Tensor(timestamps...), Rule: rule}},
				Targets: int64Tensor(targets...),
				Out:     *both,
			},
		); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(both.Data, append(bytes.Clone(out.Data), out.Data...)) {
			t.Fatal("an entry differs in a batch")
		}
	})
}

// within checks the bound of the linear mode, 2^-21 of the larger sample, in rational arithmetic.
func within(t *testing.T, got, v0, v1 float32, num, den int64) {
	t.Helper()
	a, b := float64(v0), float64(v1)
	if !isFinite(a) || !isFinite(b) || !isFinite(float64(v1-v0)) {
		return // v1-v0 may overflow
	}
	if !isFinite(float64(got)) {
		t.Fatalf("%v of %v and %v", got, v0, v1)
	}
	x, y := new(big.Rat).SetFloat64(a), new(big.Rat).SetFloat64(b)
	w := big.NewRat(num, den)
	exact := new(big.Rat).Add(x, new(big.Rat).Mul(w, new(big.Rat).Sub(y, x)))
	off := new(big.Rat).Sub(exact, new(big.Rat).SetFloat64(float64(got)))
	bound := new(big.Rat).Mul(new(big.Rat).SetFloat64(max(math.Abs(a), math.Abs(b))),
		big.NewRat(1, 1<<21))
	bound.Add(bound, new(big.Rat).SetFloat64(math.SmallestNonzeroFloat32))
	if off.Abs(off).Cmp(bound) > 0 {
		t.Fatalf("%v of %v and %v at %d/%d: off by %v", got, v0, v1, num, den, off)
	}
}
