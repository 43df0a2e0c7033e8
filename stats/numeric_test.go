package stats

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// python returns the interpreter that has NumPy, or skips with the reason.
func python(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			p := filepath.Join(dir, ".venv", "bin", "python")
			if _, err := os.Stat(p); err != nil {
				t.Skipf("no Python with NumPy: %v", err)
			}
			return p
		}
	}
	t.Skip("no go.mod above the test")
	return ""
}

type oracle struct {
	Min, Max, Mean, Std []float64
	Q                   [][]float64
}

func numpyStats(t *testing.T, raw []byte, dtype string, width int) oracle {
	t.Helper()
	py := python(t)
	f := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(f, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	const script = `
import sys, json, numpy as np
x = np.fromfile(sys.argv[1], dtype=sys.argv[2]).reshape(-1, int(sys.argv[3])).astype(np.float64)
# The deviation in extended precision: numpy's own float64 is one of the things compared.
m = x.astype(np.longdouble)
print(json.dumps(dict(Min=x.min(0).tolist(), Max=x.max(0).tolist(), Mean=[float(v) for v in m.mean(0)], Std=[float(v) for v in m.std(0)],
  Q=np.quantile(x, [.01,.1,.5,.9,.99], axis=0, method="linear").tolist())))`
	out, err := exec.Command(py, "-c", script, f, dtype, strconv.Itoa(width)).Output()
	if err != nil {
		t.Fatalf("numpy: %v", err)
	}
	var o oracle
	if err := json.Unmarshal(out, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func near(a, b, scale float64) bool { return math.Abs(a-b) <= 1e-12*max(math.Abs(b), scale) }

func check(t *testing.T, fs *robocache.FeatureStats, o oracle) {
	t.Helper()
	for c := range o.Min {
		if fs.Min[c] != o.Min[c] || fs.Max[c] != o.Max[c] {
			t.Errorf(
				"column %d: min, max %v %v, numpy %v %v",
				c,
				fs.Min[c],
				fs.Max[c],
				o.Min[c],
				o.Max[c],
			)
		}
		if !near(fs.Mean[c], o.Mean[c], o.Std[c]) || math.Abs(fs.Std[c]-o.Std[c]) > 1e-9*o.Std[c] {
			t.Errorf(
				"column %d: mean, std %v %v, numpy %v %v",
				c,
				fs.Mean[c],
				fs.Std[c],
				o.Mean[c],
				o.Std[c],
			)
		}
		for i, q := range Quantiles {
			if fs.Quantiles[q.Name][c] != o.Q[i][c] {
				t.Errorf(
					"column %d: %s %v, numpy %v",
					c,
					q.Name,
					fs.Quantiles[q.Name][c],
					o.Q[i][c],
				)
			}
		}
	}
}

func pieces(raw []byte, row int) Blocks {
	return func(_ context.Context, yield func([]byte) error) error {
		rest := raw
		for step := 1; len(rest) > 0; step = step*3%4096 + 1 {
			n := min(step*row, len(rest))
			if err := yield(rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	}
}

// nothingHeld sets heldBytes to 0, so that a budget of 1 byte has an effect.
func nothingHeld(t *testing.T) {
	was := heldBytes
	heldBytes = 0
	t.Cleanup(func() { heldBytes = was })
}

// TestHeldQuantiles covers stats.S2: quantiles of values in memory equal those of the sorted
// values, for any distribution.
func TestHeldQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	var pick picker
	for name, draw := range map[string]func(i int) float64{
		"normal":    func(int) float64 { return rng.NormFloat64() },
		"few":       func(int) float64 { return float64(rng.IntN(3)) },
		"wide":      func(int) float64 { return math.Exp(40 * rng.NormFloat64()) },
		"one apart": func(i int) float64 { return float64(i/700) * 1e300 },
		"huge":      func(i int) float64 { return math.MaxFloat64 * float64(1-2*(i%2)) },
		"denormal":  func(int) float64 { return 5e-324 * float64(rng.IntN(9)) },
		"near":      func(int) float64 { return 1e9 + float64(rng.IntN(5))*1e-7 },
		"rising":    func(i int) float64 { return float64(i) },
		"equal":     func(int) float64 { return -3 },
	} {
		for _, n := range []int{1, 2, sortedWhole, sortedWhole + 1, 701, 40000} {
			v := make([]float64, n)
			for i := range v {
				v[i] = draw(i)
			}
			sorted := slices.Sorted(slices.Values(v))
			want := quantilesAt(int64(n), func(r int64) float64 { return sorted[r] })
			if got := pick.quantiles(v, sorted[0], sorted[n-1]); !slices.Equal(got, want) {
				t.Errorf("%s, %d: %v, sorted %v", name, n, got, want)
			}
		}
	}
}

// TestStride covers stats.S4: every k-th pixel of a large image is counted in both directions, as
// lerobot's auto_downsample_height_width does, unless all frames are counted.
func TestStride(t *testing.T) {
	for _, c := range []struct{ w, h, k int }{
		{299, 200, 1},
		{300, 20, 2},
		{640, 480, 4},
		{480, 640, 4},
		{1280, 720, 8},
		{449, 449, 2},
	} {
		pic, want, all := make([]byte, c.w*c.h*3), NewPixels(3), NewPixels(3)
		for i := range pic {
			pic[i] = byte(i * i >> 7)
		}
		var kept []byte
		for y := 0; y < c.h; y += c.k {
			for x := 0; x < c.w; x += c.k {
				kept = append(kept, pic[3*(y*c.w+x):][:3]...)
			}
		}
		want.Add8(kept, (c.w+c.k-1)/c.k)
		all.Add8(pic, c.w)
		for policy, want := range map[FramePolicy]*Pixels{SampledFrames: want, AllFrames: all} {
			p := policy.Images(&robocache.Feature{Kind: robocache.KindImage})
			p.Add8(pic, c.w)
			for ch := range p.hist {
				if !slices.Equal(p.hist[ch], want.hist[ch]) {
					t.Errorf("%d×%d, %s: other pixels", c.w, c.h, policy)
				}
			}
		}
	}
}

// TestAgainstNumPy covers stats.S1 and stats.S2: moments and quantiles equal NumPy's, by sorting
// and by searching, for every type and kind of length.
func TestAgainstNumPy(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	enc := map[robocache.DType]func(b []byte, v float64) []byte{
		robocache.Float64: func(
			b []byte, v float64,
		) []byte {
			return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		},
		robocache.Float32: func(b []byte, v float64) []byte {
			return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		},
		robocache.Int64: func(
			b []byte, v float64,
		) []byte {
			return binary.LittleEndian.AppendUint64(b, uint64(int64(v*1e6)))
		},
		robocache.Int16: func(
			b []byte, v float64,
		) []byte {
			return binary.LittleEndian.AppendUint16(b, uint16(int16(v*100)))
		},
		robocache.Uint8: func(
			b []byte, v float64,
		) []byte {
			return append(b, uint8(int(v*30)&255))
		},
		robocache.Uint32: func(
			b []byte, v float64,
		) []byte {
			return binary.LittleEndian.AppendUint32(b, uint32(int64(v*1e6)))
		},
	}
	nothingHeld(t)
	t.Log("rows: 1, 3, 101, 16387 (ROBOCACHE_EXHAUSTIVE=1: 2, 5000, 40000 too)")
	for dtype, put := range enc {
		lengths := []int{1, 3, 101, 16387}
		if os.Getenv("ROBOCACHE_EXHAUSTIVE") == "1" {
			lengths = append(lengths, 2, 5000, 40000)
		}
		for _, rows := range lengths {
			const width = 3
			var raw []byte
			for range rows {
				raw = put(raw, rng.NormFloat64())
				raw = put(raw, 1000+0.0093*rng.NormFloat64())
				raw = put(raw, float64(rng.IntN(3))-1)
			}
			want := numpyStats(t, raw, dtype.String(), width)
			for _, budget := range []int64{1, 64 << 20} {
				fs, left, err := Numeric(
					t.Context(),
					dtype,
					[]int{width},
					pieces(raw, width*dtype.Size()),
					budget,
				)
				if err != nil || left != 0 {
					t.Fatal(err, left)
				}
				if fs.Count != int64(rows) {
					t.Errorf("count %d of %d", fs.Count, rows)
				}
				check(t, fs, want)
			}
		}
	}
}

// TestCancellation covers stats.S1: a float32 E[x²]−E[x]² gives 0.354 here, or 0.
func TestCancellation(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct{ offset, std float64 }{
		{1000, 0.0093},
		{100, 0.0101},
		{1e9, 1e-3},
		{-4e7, 2},
	} {
		var raw []byte
		for range 30000 {
			raw = binary.LittleEndian.AppendUint64(
				raw,
				math.Float64bits(c.offset+c.std*rng.NormFloat64()),
			)
		}
		fs, _, err := Numeric(t.Context(), robocache.Float64, nil, pieces(raw, 8), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		o := numpyStats(t, raw, "float64", 1)
		check(t, fs, o)
		if math.Abs(fs.Std[0]-c.std) > 0.05*c.std {
			t.Errorf("offset %v: std %v, want about %v", c.offset, fs.Std[0], c.std)
		}
	}
}

// TestLastAxis covers stats.S3: (2,3) is reduced to 3 numbers, and the count is the number of rows.
func TestLastAxis(t *testing.T) {
	var raw []byte
	for i := range 12 {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i)))
	}
	fs, _, err := NumericBytes(t.Context(), robocache.Float32, []int{2, 3}, raw, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if fs.Count != 2 || len(fs.Mean) != 3 || fs.Mean[0] != 4.5 || fs.Max[2] != 11 {
		t.Errorf("%+v", fs)
	}
}

// TestNonFinite covers stats.S5: values that are not finite are left out and counted, by both
// methods for quantiles.
func TestNonFinite(t *testing.T) {
	nothingHeld(t)
	for _, budget := range []int64{1, 1 << 20} {
		const rows = 32768
		var raw []byte
		for i := range rows {
			v := float64(i % 4)
			switch i % 4 {
			case 1:
				v = math.NaN()
			case 2:
				v = math.Inf(-1)
			}
			raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v))
		}
		fs, left, err := NumericBytes(t.Context(), robocache.Float64, []int{1}, raw, budget)
		if err != nil {
			t.Fatal(err)
		}
		if left != int64(rows/2) || fs.Min[0] != 0 || fs.Max[0] != 3 || fs.Mean[0] != 1.5 ||
			fs.Quantiles["q01"][0] != 0 ||
			fs.Quantiles["q99"][0] != 3 {
			t.Errorf("%d left out, %+v", left, fs)
		}
	}
}

// TestMerge covers stats.S6: any split merges to the same numbers.
func TestMerge(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	values := make([]float64, 3000)
	for i := range values {
		values[i] = 1e5 + rng.NormFloat64()
	}
	whole := NewMoments(3)
	whole.Add(values)
	for range 20 {
		cut := rng.IntN(1001) * 3
		a, b := NewMoments(3), NewMoments(3)
		a.Add(values[:cut])
		b.Add(values[cut:])
		a.Merge(b)
		for c := range 3 {
			if a.N[c] != whole.N[c] || a.Min[c] != whole.Min[c] || a.Max[c] != whole.Max[c] ||
				!near(a.Mean(c), whole.Mean(c), 1) ||
				math.Abs(a.Std(c)-whole.Std(c)) > 1e-12 {
				t.Fatalf(
					"cut %d column %d: %v %v, whole %v %v",
					cut,
					c,
					a.Mean(c),
					a.Std(c),
					whole.Mean(c),
					whole.Std(c),
				)
			}
		}
	}
}

// TestCollectorSpills covers stats.S7: a collector beyond its budget gives the same result as one
// within it.
func TestCollectorSpills(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var raw []byte
	for range 50000 {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(rng.NormFloat64())))
	}
	run := func(budget int64) []byte {
		c := NewCollector(budget)
		defer c.Close()
		for i := 0; i < len(raw); i += 4000 {
			if err := c.Add("x", robocache.Float32, []int{2}, raw[i:i+4000]); err != nil {
				t.Fatal(err)
			}
		}
		s, _, err := c.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a, b := run(1<<30), run(10000)
	var x, y map[string]map[string][]float64
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		t.Fatal("not JSON")
	}
	for name, v := range x["x"] {
		for i := range v {
			if !near(v[i], y["x"][name][i], 1) {
				t.Errorf("%s: %v in memory, %v spilled", name, v[i], y["x"][name][i])
			}
		}
	}
	if !bytes.Contains(a, []byte(`"q99"`)) {
		t.Errorf("no quantiles in %s", a)
	}
}

// TestPixels covers stats.S4: pixels equal NumPy's result for the scaled values, and the chosen
// frames follow lerobot's rule.
func TestPixels(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	p := NewPixels(3)
	var raw []byte
	for range 5 {
		pic := make([]byte, 16*20*3)
		for i := range pic {
			pic[i] = uint8(rng.IntN(200))
		}
		p.Add8(pic, 20)
		for _, v := range pic {
			raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(float64(v)/255))
		}
	}
	fs := p.Stats()
	if fs.Count != 5 || len(fs.Shape) != 3 {
		t.Errorf("%+v", fs)
	}
	check(t, fs, numpyStats(t, raw, "float64", 3))
}

func TestSampleFrames(t *testing.T) {
	py := python(t)
	out, err := exec.Command(py, "-c", `
import json, numpy as np
def f(n):
    m = min(n, 100); k = max(m, min(int(n**0.75), 10000)); return np.round(np.linspace(0, n-1, k)).astype(int).tolist()
print(json.dumps({str(n): f(n) for n in [1,2,3,99,100,101,250,463,464,465,1000,4321,20000]}))`).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want map[int][]int
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	for n, w := range want {
		got := SampleFrames(n)
		if len(got) != len(w) {
			t.Errorf("%d: %d frames, want %d", n, len(got), len(w))
			continue
		}
		for i := range w {
			if got[i] != w[i] {
				t.Errorf("%d: frame %d is %d, want %d", n, i, got[i], w[i])
				break
			}
		}
	}
}

func BenchmarkNumeric(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	raw := make([]byte, 0, 4*26*50000)
	for range 26 * 50000 {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(rng.NormFloat64())))
	}
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, _, err := NumericBytes(b.Context(), robocache.Float32, []int{26}, raw, 64<<20); err !=
			nil {
			b.Fatal(err)
		}
	}
}

// TestHugeValues checks values near the limit of the range, which overflow the sums but must not
// appear as infinity in the file.
func TestHugeValues(t *testing.T) {
	var raw []byte
	for i := range 10 {
		raw = binary.LittleEndian.AppendUint64(
			raw,
			math.Float64bits(math.MaxFloat64*float64(1-2*(i%2))),
		)
	}
	fs, _, err := NumericBytes(t.Context(), robocache.Float64, []int{1}, raw, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Marshal(robocache.Stats{"x": fs}); err != nil {
		t.Error(err)
	}
}

// BenchmarkEpisodes measures columns of a moving robot: one episode, and a set of many.
func BenchmarkEpisodes(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	const width = 26
	at := make([]float64, width)
	for _, rows := range []int{300, 100000} {
		raw := make([]byte, 0, 4*width*rows)
		for range rows {
			for c := range at {
				at[c] = 0.99*at[c] + 0.01*rng.NormFloat64()
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(at[c])))
			}
		}
		b.Run(strconv.Itoa(rows), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if _, _, err := NumericBytes(b.Context(), robocache.Float32, []int{width}, raw,
					64<<20); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
