package kernel_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// turnCase is one case of rotations.json, which testdata/rotations.py computes.
type turnCase struct {
	Form   string
	V0, V1 [3]float64
	W      float64
	Matrix [9]float64
	Own    *[3]float64
}

// turns reads the cases of testdata/rotations.json.
func turns(t *testing.T) (out []turnCase) {
	t.Helper()
	b, err := os.ReadFile("testdata/rotations.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// times3 returns the product of two 3×3 matrices.
func times3(a, b [9]float64) (c [9]float64) {
	for i := range 3 {
		for j := range 3 {
			for k := range 3 {
				c[3*i+j] += a[3*i+k] * b[3*k+j]
			}
		}
	}
	return c
}

// about returns the matrix of a turn by a about an axis.
func about(axis int, a float64) [9]float64 {
	s, c := math.Sincos(a)
	switch axis {
	case 0:
		return [9]float64{1, 0, 0, 0, c, -s, 0, s, c}
	case 1:
		return [9]float64{c, 0, s, 0, 1, 0, -s, 0, c}
	}
	return [9]float64{c, -s, 0, s, c, 0, 0, 0, 1}
}

// matrix returns the rotation matrix by the definition of the form, without quaternions.
func matrix(form string, v [3]float64) (m [9]float64) {
	if form == robocache.FormRotVec { // Rodrigues' formula
		n := math.Sqrt(v[0]*v[0] + v[1]*v[1] + v[2]*v[2])
		one := [9]float64{1, 0, 0, 0, 1, 0, 0, 0, 1}
		if n == 0 {
			return one
		}
		k := [9]float64{0, -v[2] / n, v[1] / n, v[2] / n, 0, -v[0] / n, -v[1] / n, v[0] / n, 0}
		s, c := math.Sincos(n)
		k2 := times3(k, k)
		for i := range m {
			m[i] = one[i] + s*k[i] + (1-c)*k2[i]
		}
		return m
	}
	m = [9]float64{1, 0, 0, 0, 1, 0, 0, 0, 1}
	for i := range 3 {
		if form[0] >= 'a' {
			m = times3(about(int(form[i]-'x'), v[i]), m)
		} else {
			m = times3(m, about(int(form[i]-'X'), v[i]))
		}
	}
	return m
}

// blended returns the blend of two rotations at weight w, which are channels 1 to 3 of 5. It checks
// that channels 0 and 4 are linear.
func blended(t *testing.T, form string, v0, v1 [3]float64, w float64) (v [3]float64) {
	t.Helper()
	src := make([]byte, 10*8)
	for i, x := range []float64{10, v0[0], v0[1], v0[2], 1, 20, v1[0], v1[1], v1[2], 2} {
		binary.LittleEndian.PutUint64(src[8*i:], math.Float64bits(x))
	}
	out := make([]byte, 5*8)
	p := &kernel.Plan{
		Mode:    kernel.Slerp,
		Sources: 2,
		Kind:    []kernel.Kind{kernel.Blend},
		Left:    []int32{0},
		Right:   []int32{1},
		Weight:  []float64{w},
		Valid:   []uint8{1},
	}
	if err := kernel.Resample(
		kernel.Dense(out, robocache.Float64, 1, 5),
		kernel.Dense(src, robocache.Float64, 2, 5),
		p,
		kernel.Options{Rule: kernel.Rule{Rotations: []robocache.Rotation{{At: 1, Form: form}}}},
	); err != nil {
		t.Fatal(err)
	}
	at := func(i int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(out[8*i:])) }
	if x, y := at(0), at(4); math.Abs(x-(10+10*w)) > 1e-14*20 || math.Abs(y-(1+w)) > 1e-15*4 {
		t.Errorf("the other channels: %g, %g at %g", x, y, w)
	}
	return [3]float64{at(1), at(2), at(3)}
}

// TestRotationsAgainstScipy covers kernel.K21. It compares each result as a matrix. If scipy writes
// the samples as they were given, it also compares the numbers.
func TestRotationsAgainstScipy(t *testing.T) {
	all, own, through := turns(t), 0, 0
	for i, c := range all {
		v := blended(t, c.Form, c.V0, c.V1, c.W)
		m := matrix(c.Form, v)
		// true if the result is near gimbal lock; the samples need not be
		into := locked(turnCase{Form: c.Form, V0: v, V1: v})
		if into && !locked(c) {
			through++
		}
		for k := range m {
			if d := math.Abs(m[k] - c.Matrix[k]); !(d < 3e-8) || d > 1e-12 && !locked(c) && !into {
				t.Fatalf("%d %s %v → %v at %g: %v, off by %g", i, c.Form, c.V0, c.V1, c.W, v, d)
			}
		}
		if c.Own == nil || locked(c) || into {
			continue
		}
		own++
		for k := range v {
			if d := math.Abs(v[k] - c.Own[k]); !(d < 1e-9) {
				t.Errorf("%d %s %v → %v at %g: %v, scipy %v", i, c.Form, c.V0, c.V1, c.W, v, *c.Own)
				break
			}
		}
	}
	if len(all) < 700 || own < 300 || through < 100 {
		t.Errorf("%d cases, %d of them in scipy's words, %d through a lock", len(all), own, through)
	}
}

// locked reports whether a case is near gimbal lock, where angles are exact only to the square root
// of the machine precision.
func locked(c turnCase) bool {
	if c.Form == robocache.FormRotVec {
		return false
	}
	f := func(v [3]float64) float64 {
		if c.Form[0] == c.Form[2] {
			return math.Abs(math.Sin(v[1]))
		}
		return math.Abs(math.Cos(v[1]))
	}
	return f(c.V0) < 1e-3 || f(c.V1) < 1e-3
}

// TestRotationsGoOn checks that a blend stays near the straight line between two near rotations,
// and that it approaches each sample at its end of the interval.
func TestRotationsGoOn(t *testing.T) {
	for _, c := range turns(t) {
		reach := 0.0
		for k := range c.V0 {
			reach = max(reach, math.Abs(c.V1[k]-c.V0[k]))
		}
		if reach > 0.6 || locked(c) {
			continue // another branch, or the other representation of the same rotation
		}
		for _, w := range []float64{1e-9, 0.125, 0.5, 0.75, 1 - 1e-9} {
			v := blended(t, c.Form, c.V0, c.V1, w)
			for k := range v {
				if d := math.Abs(v[k] - (c.V0[k] + w*(c.V1[k]-c.V0[k]))); d > reach+1e-6 ||
					(w < 1e-8 || w > 1-1e-8) && d > 1e-6 {
					t.Fatalf("%s %v → %v at %g: %v", c.Form, c.V0, c.V1, w, v)
				}
			}
		}
	}
}

// TestRotationsRefused checks that invalid rotations are rejected, and that NaN makes a row
// invalid.
func TestRotationsRefused(t *testing.T) {
	for name, list := range map[string][]robocache.Rotation{
		"form": {{
			At:   0,
			Form: "xxy",
		}}, "case": {{
			At:   0,
			Form: "xYz",
		}}, "outside": {{
			At:   3,
			Form: "rotvec",
		}}, "quat outside": {{At: 2, Form: "quat"}}, "below": {{At: -1, Form: "xyz"}},
		"twice": {{At: 0, Form: "rotvec"}, {At: 2, Form: "xyz"}},
	} {
		src := kernel.Dense(make([]byte, 2*5*8), robocache.Float64, 2, 5)
		p := &kernel.Plan{Mode: kernel.Slerp, Sources: 2}
		if err := kernel.Resample(kernel.Dense(nil, robocache.Float64, 0, 5), src, p,
			kernel.Options{Rule: kernel.Rule{Rotations: list}}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// NaN gives no value, and the row is marked as invalid.
	src := make([]byte, 2*3*8)
	binary.LittleEndian.PutUint64(src, math.Float64bits(math.NaN()))
	out, valid := make([]byte, 3*8), []uint8{1}
	p := &kernel.Plan{
		Mode:    kernel.Slerp,
		Sources: 2,
		Kind:    []kernel.Kind{kernel.Blend},
		Left:    []int32{0},
		Right:   []int32{1},
		Weight:  []float64{0.5},
		Valid:   []uint8{1},
	}
	err := kernel.Resample(
		kernel.Dense(out, robocache.Float64, 1, 3),
		kernel.Dense(src, robocache.Float64, 2, 3),
		p,
		kernel.Options{
			Rule:  kernel.Rule{Rotations: []robocache.Rotation{{Form: "rotvec"}}},
			Valid: valid,
		},
	)
	if err != nil || valid[0] != 0 ||
		!math.IsNaN(math.Float64frombits(binary.LittleEndian.Uint64(out))) {
		t.Errorf("NaN: %v, valid %d, %v", err, valid[0], out)
	}
}

// TestEulerStays checks that each angle takes the short way across ±π. At gimbal lock, the
// undefined angle must stay near the samples' angles.
func TestEulerStays(t *testing.T) {
	for _, c := range []struct {
		form         string
		v0, v1, want [3]float64 // want is compared modulo full turns
	}{
		{
			"xyz",
			[3]float64{3.1, 0.02, 3.1},
			[3]float64{-3.1, 0.02, -3.1},
			[3]float64{math.Pi, 0.02, math.Pi},
		},
		{
			"XYZ",
			[3]float64{3.1, 0.02, 3.1},
			[3]float64{-3.1, 0.02, -3.1},
			[3]float64{math.Pi, 0.02, math.Pi},
		},
		{
			"xyz",
			[3]float64{1.3, math.Pi / 2, 0.2},
			[3]float64{1.3, math.Pi / 2, 0.4},
			[3]float64{1.3, math.Pi / 2, 0.3},
		},
		{
			"ZYX",
			[3]float64{1.3, -math.Pi / 2, 0.2},
			[3]float64{1.3, -math.Pi / 2, 0.4},
			[3]float64{1.3, -math.Pi / 2, 0.3},
		},
		{"zxz", [3]float64{1.3, 0, 0.2}, [3]float64{1.3, 0, 0.4}, [3]float64{1.3, 0, 0.3}},
		{
			"zxz",
			[3]float64{1.3, math.Pi, 0.2},
			[3]float64{1.3, math.Pi, 0.4},
			[3]float64{1.3, math.Pi, 0.3},
		},
	} {
		v := blended(t, c.form, c.v0, c.v1, 0.5)
		for k := range v {
			if d := math.Remainder(v[k]-c.want[k], 2*math.Pi); math.Abs(d) > 0.05 {
				t.Errorf("%s %v → %v: %v, want about %v", c.form, c.v0, c.v1, v, c.want)
				break
			}
		}
	}
}
