package align

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// slow computes one row directly from the contract, with linear scans and big.Rat. It shares no
// code with the planner.
type slow struct {
	kind        kernel.Kind
	left, right int
	weight      *big.Rat
	valid       bool
	fails       bool
}

func slowRow(s []int64, t int64, o Options) slow {
	hold := func(k int) slow { return slow{kind: kernel.Copy, left: k} }
	line := func(a, b int) slow {
		num, den := new(
			big.Int,
		).Sub(big.NewInt(t), big.NewInt(s[a])),
			new(
				big.Int,
			).Sub(big.NewInt(s[b]), big.NewInt(s[a]))
		return slow{kind: kernel.Blend, left: a, right: b, weight: new(big.Rat).SetFrac(num, den)}
	}
	last := -1 // last timestamp ≤ t
	for i := range s {
		if s[i] <= t {
			last = i
		}
	}
	exact := last >= 0 && s[last] == t
	before, after := last < 0, last == len(s)-1 && !exact
	if before || after {
		if o.Edge == EdgeError {
			return slow{fails: true}
		}
		if o.Edge == EdgeMask || len(s) == 0 {
			return slow{}
		}
		edge := 0
		if !before {
			edge = len(s) - 1
		}
		if o.Edge == EdgeExtrapolate && (o.Mode == Linear || o.Mode == Angle) {
			// The distinct timestamps, each with its last sample.
			var at []int
			for i := range s {
				if i+1 == len(s) || s[i+1] != s[i] {
					at = append(at, i)
				}
			}
			if len(at) > 1 {
				if before {
					return line(at[0], at[1])
				}
				return line(at[len(at)-2], at[len(at)-1])
			}
		}
		return hold(edge)
	}
	var r slow
	var gap *big.Int
	between := func(a, b int64) *big.Int { return new(big.Int).Sub(big.NewInt(b), big.NewInt(a)) }
	near := func() int {
		if exact || between(s[last], t).Cmp(between(t, s[last+1])) <= 0 {
			return last
		}
		return last + 1
	}
	switch {
	case o.Mode == Mean:
		lo, n := -1, 0
		for i := range s {
			d := between(t, s[i])
			if d.Cmp(big.NewInt(-o.Before)) >= 0 && d.Cmp(big.NewInt(o.After)) < 0 {
				if lo < 0 {
					lo = i
				}
				n++
			}
		}
		if n == 0 {
			if o.Edge == EdgeError {
				return slow{fails: true}
			}
			if o.Edge == EdgeMask {
				return slow{}
			}
			return hold(near())
		}
		r = slow{kind: kernel.Window, left: lo, right: lo + n}
		if !exact {
			gap = between(s[last], s[last+1])
		}
	case exact:
		r = hold(last)
	case o.Mode == Previous:
		r, gap = hold(last), between(s[last], t)
	case o.Mode == Next:
		r, gap = hold(last+1), between(t, s[last+1])
	case o.Mode == Nearest:
		k := near()
		r, gap = hold(k), new(big.Int).Abs(between(s[k], t))
	default:
		r, gap = line(last, last+1), between(s[last], s[last+1])
	}
	if o.MaxGap > 0 && gap != nil && gap.Cmp(big.NewInt(o.MaxGap)) > 0 {
		switch o.Edge {
		case EdgeError:
			return slow{fails: true}
		case EdgeMask:
			return slow{}
		}
		return r
	}
	r.valid = true
	return r
}

func compare(t *testing.T, s, targets []int64, o Options) {
	t.Helper()
	p, err := NewPlan(s, targets, o)
	rows := make([]slow, len(targets))
	fails := false
	for i, at := range targets {
		rows[i] = slowRow(s, at, o)
		fails = fails || rows[i].fails
	}
	if fails != (err != nil) {
		t.Fatalf(
			"%v %v gap %d: src %v targets %v: error %v, oracle fails %v",
			o.Mode,
			o.Edge,
			o.MaxGap,
			s,
			targets,
			err,
			fails,
		)
	}
	if fails {
		return
	}
	for i, r := range rows {
		got := slow{
			kind:  p.Kind[i],
			left:  int(p.Left[i]),
			right: int(p.Right[i]),
			valid: p.Valid[i] == 1,
		}
		ok := got.kind == r.kind && got.valid == r.valid
		switch r.kind {
		case kernel.Copy:
			ok = ok && got.left == r.left
		case kernel.Window:
			ok = ok && got.left == r.left && got.right == r.right
		case kernel.Blend:
			// The weight is two roundings to float64 and one division, so it is within 2 ulp of the
			// rational number.
			w, _ := r.weight.Float64()
			ok = ok && got.left == r.left && got.right == r.right &&
				math.Abs(p.Weight[i]-w) <= 4*math.Abs(w)*0x1p-53
		}
		if !ok {
			t.Fatalf(
				"%v %v gap %d: src %v target %d: got %+v weight %v, want %+v",
				o.Mode,
				o.Edge,
				o.MaxGap,
				s,
				targets[i],
				got,
				p.Weight[i],
				r,
			)
		}
	}
}

// TestPlanAgainstRationals covers align.A2, align.A3, align.A4, align.A5, align.A7, align.A8 and
// align.A9. It uses every mode and policy on small, large and repeated timestamps.
func TestPlanAgainstRationals(t *testing.T) {
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := rng.IntN(9)
		base := []int64{
			0,
			-1_000,
			1_760_000_000_000_000_000,
			maxTime - 200,
			-maxTime + 1,
		}[rng.IntN(5)]
		step := []int64{2, 10}[rng.IntN(2)]
		s := make([]int64, n)
		at := base + int64(rng.IntN(10))
		for i := range s {
			s[i] = at
			// often 0: equal timestamps at the start, in the middle and at the end
			at += rng.Int64N(step)
		}
		targets := make([]int64, 1+rng.IntN(12))
		for i := range targets {
			targets[i] = min(base+int64(rng.IntN(120))-20, maxTime-1)
			targets[i] = max(targets[i], -maxTime+1)
			if n > 0 && rng.IntN(3) == 0 {
				targets[i] = s[rng.IntN(n)]
			}
		}
		if rng.IntN(2) == 0 {
			slices.Sort(targets)
		}
		for m := Linear; m <= Mean; m++ {
			for e := EdgeClamp; e <= EdgeError; e++ {
				o := Options{
					Mode:   m,
					Edge:   e,
					MaxGap: int64(rng.IntN(6)),
					Before: 1 + int64(rng.IntN(6)),
					After:  int64(rng.IntN(7)),
				}
				compare(t, s, targets, o)
			}
		}
	}
}

// TestValidIgnoresPolicy covers align.A3.
func TestValidIgnoresPolicy(t *testing.T) {
	s := []int64{10, 20, 20, 30, 90, 100}
	targets := []int64{0, 10, 15, 20, 60, 95, 100, 101}
	for m := Linear; m <= Mean; m++ {
		var want []uint8
		for e := EdgeClamp; e <= EdgeExtrapolate; e++ {
			p, err := NewPlan(
				s,
				targets,
				Options{Mode: m, Edge: e, MaxGap: 20, Before: 5, After: 5},
			)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = p.Valid
			}
			if !slices.Equal(want, p.Valid) {
				t.Errorf("%v: %v under %v, %v under clamp", m, p.Valid, e, want)
			}
		}
	}
}

// TestPlanErrors covers align.A6.
func TestPlanErrors(t *testing.T) {
	ok := []int64{0, 1}
	for _, c := range []struct {
		name         string
		src, targets []int64
		opt          Options
		class        error
		index        any
		phrase       string
	}{
		{
			"decreasing",
			[]int64{5, 7, 6},
			nil,
			Options{},
			robocache.ErrMalformed,
			2,
			"timestamps must not decrease",
		},
		{"far timestamp", []int64{5, maxTime}, nil, Options{}, robocache.ErrMalformed, 1, "±2^62"},
		{"far target", ok, []int64{-maxTime}, Options{}, robocache.ErrMalformed, nil, "±2^62"},
		{
			"outside",
			ok,
			[]int64{2},
			Options{Edge: EdgeError},
			robocache.ErrMisuse,
			nil,
			"outside the source range",
		},
		{
			"no samples",
			nil,
			[]int64{2},
			Options{Edge: EdgeError},
			robocache.ErrMisuse,
			nil,
			"outside the source range",
		},
		{
			"gap",
			[]int64{0, 100},
			[]int64{50},
			Options{Edge: EdgeError, MaxGap: 99},
			robocache.ErrMalformed,
			nil,
			"gap exceeds max_gap",
		},
		{"mean without window", ok, ok, Options{Mode: Mean}, robocache.ErrMisuse, nil, "window"},
		{"negative gap", ok, ok, Options{MaxGap: -1}, robocache.ErrMisuse, nil, "max_gap"},
		{"mode", ok, ok, Options{Mode: 99}, robocache.ErrMisuse, nil, "Invalid mode"},
		{"edge", ok, ok, Options{Edge: 99}, robocache.ErrMisuse, nil, "Invalid edge"},
	} {
		c.opt.Stream = "wrench"
		_, err := NewPlan(c.src, c.targets, c.opt)
		var e *robocache.Error
		if !errors.As(err, &e) || !errors.Is(err, c.class) ||
			!strings.Contains(err.Error(), c.phrase) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if e.Where["stream"] != "wrench" || e.Where["index"] != c.index {
			t.Errorf("%s: place %v", c.name, e.Where)
		}
	}
	for _, name := range []string{"lerp", "", "Linear"} {
		if _, err := kernel.ParseMode(name); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("ParseMode(%q): %v", name, err)
		}
		if err := new(kernel.Edge).UnmarshalText([]byte(name)); !errors.Is(err,
			robocache.ErrMisuse) {
			t.Errorf("ParseEdge(%q): %v", name, err)
		}
	}
}

// TestEpochTimestamps checks that one nanosecond makes a difference at the Unix epoch.
func TestEpochTimestamps(t *testing.T) {
	const epoch = 1_760_000_000_000_000_000
	s := []int64{epoch, epoch + 1, epoch + 3}
	p, err := NewPlan(s, []int64{epoch, epoch + 1, epoch + 2}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Kind[1] != kernel.Copy || p.Left[1] != 1 || p.Weight[2] != 0.5 {
		t.Errorf("%+v", p)
	}
}

// FuzzNewPlan checks that any timestamps and targets give the same plan as the slow one, or an
// error, and never a panic.
func FuzzNewPlan(f *testing.F) {
	f.Add([]byte{0, 1, 1, 3, 9}, []byte{0, 1, 2, 255}, uint8(0), uint8(0), int64(3))
	f.Fuzz(func(t *testing.T, src, targets []byte, mode, edge uint8, gap int64) {
		if len(src) > 50 || len(targets) > 50 {
			return
		}
		var s, at []int64
		now := int64(0)
		for _, b := range src {
			now += int64(b % 16)
			s = append(s, now)
		}
		for _, b := range targets {
			at = append(at, int64(b)*4-100)
		}
		compare(
			t,
			s,
			at,
			Options{
				Mode:   Mode(mode % 7),
				Edge:   Edge(edge % 4),
				MaxGap: max(gap, 0),
				Before: int64(mode),
				After:  int64(edge) + 1,
			},
		)
	})
}

func BenchmarkNewPlan(b *testing.B) {
	src := Uniform(0, 100e9, robocache.Rate{Num: 100, Den: 1})
	for _, order := range []string{"ascending", "shuffled"} {
		targets := Uniform(0, 100e9, robocache.Rate{Num: 50, Den: 1})
		if order == "shuffled" {
			rng := rand.New(rand.NewPCG(1, 2))
			rng.Shuffle(
				len(targets),
				func(i, j int) { targets[i], targets[j] = targets[j], targets[i] },
			)
		}
		b.Run(fmt.Sprintf("%s/S=%d/T=%d", order, len(src), len(targets)), func(b *testing.B) {
			b.SetBytes(int64(8 * (len(src) + len(targets))))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := NewPlan(src, targets, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
