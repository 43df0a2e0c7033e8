package kernel_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// floats returns numbers as little-endian float64.
func floats(x ...float64) []byte {
	var out []byte
	for _, v := range x {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
	}
	return out
}

// readFloats returns the float64 numbers in memory.
func readFloats(b []byte) []float64 {
	out := make([]float64, len(b)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out
}

// summed resamples one column under ModeSum.
func summed(
	t *testing.T,
	src, targets []int64,
	values []float64,
	rule kernel.Rule,
) (out []float64, valid []uint8) {
	t.Helper()
	rule.Mode = kernel.ModeSum
	p, err := kernel.NewPlan(src, targets, rule)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8*len(targets))
	to := kernel.Dense(b, robocache.Float64, len(targets), 1)
	from := kernel.Dense(floats(values...), robocache.Float64, len(src), 1)
	if err := kernel.Resample(to, from, p, kernel.Options{Rule: rule}); err != nil {
		t.Fatal(err)
	}
	return readFloats(b), p.Valid
}

// slowSum adds, for each sample, its value times the fraction of the sample that lies in [from,
// to).
func slowSum(src []int64, values []float64, from, to int64) (sum float64) {
	for k, start := range src {
		end := start
		if k+1 < len(src) {
			end = src[k+1]
		} else {
			for j := k - 1; j >= 0 && end == start; j-- {
				end = start + start - src[j]
			}
		}
		switch {
		case start == end && from <= start && start < to:
			sum += values[k]
		case start < end:
			sum += values[k] * max(0, float64(min(end, to)-max(start, from))) / float64(end-start)
		}
	}
	return sum
}

// TestSumMatchesTheDefinition compares kernel.K24 with a sum over all samples. The clocks have
// jitter and equal timestamps; the rows have any length and any order.
func TestSumMatchesTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		n := r.IntN(12)
		src, values := make([]int64, n), make([]float64, n)
		at := 10 * int64(r.IntN(20))
		for k := range src {
			src[k], values[k] = at, r.NormFloat64()
			if r.IntN(5) > 0 {
				at += 10 * int64(1+r.IntN(30))
			}
		}
		targets := make([]int64, 1+r.IntN(20))
		for i := range targets {
			targets[i] = 10 * int64(r.IntN(400)-50)
		}
		length := 10 * int64(1+r.IntN(100))
		got, _ := summed(t, src, targets, values, kernel.Rule{After: length})
		for i, x := range got {
			if want := slowSum(src, values, targets[i], targets[i]+
				length); math.Abs(x-want) > 1e-12 && n > 0 {
				t.Fatalf(
					"timestamps %v, values %v: [%d, %d) = %v, want %v",
					src,
					values,
					targets[i],
					targets[i]+length,
					x,
					want,
				)
			}
		}
	}
}

// TestSumKeepsTheTotal checks that all rows of a timeline add up to the stream's total, at many
// rates.
func TestSumKeepsTheTotal(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, sourceRate := range []int64{3, 5, 10, 15, 30, 50} {
		for _, rate := range []int64{1, 2, 3, 5, 7, 10, 20, 30, 100, 1000} {
			n := 20 + r.IntN(40)
			src, values, total := make([]int64, n), make([]float64, n), 0.0
			for k := range src {
				src[k] = robocache.Rate{Num: sourceRate, Den: 1}.Nanos(int64(k))
				values[k] = r.NormFloat64()
				total += values[k]
			}
			end := src[n-1] + src[1]
			var targets []int64
			for k := int64(0); ; k++ {
				at := robocache.Rate{Num: rate, Den: 1}.Nanos(k)
				if at >= end {
					break
				}
				targets = append(targets, at)
			}
			got, _ := summed(
				t,
				src,
				targets,
				values,
				kernel.Rule{After: robocache.Rate{Num: rate, Den: 1}.Nanos(1)},
			)
			sum := 0.0
			for _, x := range got {
				sum += x
			}
			if math.Abs(sum-total) > 1e-6 {
				t.Errorf("%d Hz at %d Hz: total %v, want %v", sourceRate, rate, sum, total)
			}
			if rate == sourceRate && !slices.Equal(got, values) {
				t.Errorf("%d Hz at its own rate: %v, want %v", rate, got, values)
			}
		}
	}
}

// TestSumAtEdgesAndGaps checks the values and the validity of rows that the samples do not fully
// cover.
func TestSumAtEdgesAndGaps(t *testing.T) {
	src, values := []int64{100, 200, 300, 700, 800}, []float64{1, 2, 4, 8, 16}
	for _, c := range []struct {
		name   string
		target int64
		length int64
		gap    int64
		want   float64
		valid  uint8
	}{
		{"a sample", 200, 100, 0, 2, 1},
		{"half of a sample", 250, 50, 0, 1, 1},
		{"parts of three", 150, 200, 0, 0.5 + 2 + 0.5, 1},
		{"before the data", 0, 100, 0, 0, 0},
		{"into the data", 50, 100, 0, 0.5, 0},
		{"the last sample lasts as long as the step before it", 800, 50, 0, 8, 1},
		{"beyond the last sample's time", 850, 1000, 0, 8, 0},
		{"behind the data", 900, 100, 0, 0, 0},
		{"a part of a long sample", 300, 100, 100, 1, 0},
		{"a long sample as a whole", 300, 400, 100, 4, 1},
		{"a gap that begins inside of the row", 250, 100, 100, 1 + 0.5, 0},
	} {
		got, valid := summed(
			t,
			src,
			[]int64{c.target},
			values,
			kernel.Rule{After: c.length, MaxGap: c.gap},
		)
		if got[0] != c.want || valid[0] != c.valid {
			t.Errorf("%s: %v, valid %d; want %v, %d", c.name, got[0], valid[0], c.want, c.valid)
		}
	}
	masked, valid := summed(
		t,
		src,
		[]int64{50, 250},
		values,
		kernel.Rule{After: 100, MaxGap: 100, Edge: kernel.Mask},
	)
	if !slices.Equal(masked, []float64{0, 0}) || !slices.Equal(valid, []uint8{0, 0}) {
		t.Errorf("edge mask: %v, valid %v; want zeros", masked, valid)
	}
	for _, target := range []int64{50, 250} {
		if _, err := kernel.NewPlan(src, []int64{target}, kernel.Rule{
			Mode:  kernel.ModeSum,
			After: 100, MaxGap: 100, Edge: kernel.ErrorEdge,
		}); err == nil {
			t.Errorf("edge error at %d: no error", target)
		}
	}
}

// TestSumOfSomeChannels checks that the other channels are linear.
func TestSumOfSomeChannels(t *testing.T) {
	src := []int64{0, 100, 200}
	rule := kernel.Rule{Mode: kernel.ModeSum, After: 50, Summed: []int{0, 2}}
	p, err := kernel.NewPlan(src, []int64{0, 50, 100, 150, 200, 250}, rule)
	if err != nil {
		t.Fatal(err)
	}
	data := floats(1, 0, 10, 10, 2, 1, 20, 20, 3, 0, 30, 30)
	out := make([]byte, 8*4*p.Len())
	err = kernel.Resample(
		kernel.Dense(out, robocache.Float64, p.Len(), 4),
		kernel.Dense(data, robocache.Float64, 3, 4),
		p,
		kernel.Options{Rule: rule},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{
		0.5, 0, 5, 10,
		0.5, 0.5, 5, 15,
		1, 1, 10, 20,
		1, 0.5, 10, 25,
		1.5, 0, 15, 30,
		1.5, 0, 15, 30,
	}
	if got := readFloats(out); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, bad := range [][]int{{4}, {-1}, {1, 0}, {1, 1}} {
		rule.Summed = bad
		err := kernel.Resample(
			kernel.Dense(out, robocache.Float64, p.Len(), 4),
			kernel.Dense(data, robocache.Float64, 3, 4),
			p,
			kernel.Options{Rule: rule},
		)
		if !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("channels %v: %v, want misuse", bad, err)
		}
	}
}

// TestSumIsNoOp checks that operations on tensors reject the mode.
func TestSumIsNoOp(t *testing.T) {
	rule := kernel.Rule{Mode: kernel.ModeSum, After: 1}
	tensor := func(shape ...int) kernel.Tensor {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return kernel.Tensor{DType: robocache.Float64, Shape: shape, Data: make([]byte, 8*n)}
	}
	fuse := &kernel.FuseOp{
		Series:  []kernel.Series{{Values: tensor(1, 2, 1), Times: tensor(2), Rule: rule}},
		Targets: tensor(2), Out: tensor(1, 2, 1),
	}
	apply := &kernel.ApplyOp{
		Parts: []kernel.Part{{Src: tensor(2, 1), Out: tensor(2, 1), Rule: rule}},
	}
	for _, op := range []kernel.Op{fuse, apply} {
		if err := (kernel.Reference{}).Run(op); !errors.Is(err, robocache.ErrUnsupported) {
			t.Errorf("%T: %v, want unsupported", op, err)
		}
	}
}
