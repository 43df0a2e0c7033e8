package vector

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/kernel"
)

// compilePart returns the part of a JSON text for rows of elements numbers.
func compilePart(t testing.TB, text string, elements, steps int) *Part {
	t.Helper()
	var s PartSpec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(text, err)
	}
	p, err := s.Compile(elements, elements, steps)
	if err != nil {
		t.Fatal(text, err)
	}
	return p
}

// TestRotationsHaveScipysValues checks vector.C1 for each form of one rotation.
func TestRotationsHaveScipysValues(t *testing.T) {
	m := []float64{
		-0.6395720384642074, -0.7504180967877911, -0.1667941474636541,
		0.5427179921071046, -0.2871112547636485, -0.7893188889360725,
		0.5444307014285387, -0.595348475601838, 0.5908937332047081,
	}
	for form, want := range map[string][]float64{
		FormMatrix:   m,
		FormRot6D:    m[:6],
		FormRot6DCol: {m[0], m[3], m[6], m[1], m[4], m[7]},
		FormQuat:     {0.11900155786242116, -0.4363390454955443, 0.7933437190828078, 0.40749553371075486},
		FormQuatW:    {0.40749553371075486, 0.11900155786242116, -0.4363390454955443, 0.7933437190828078},
		"xyz":        {-0.7891534853908165, -0.5757102638677087, 2.437932684280377},
		"zxz":        {2.4008381749815912, 0.9386301147709278, -0.20825038030635112},
		"ZYX":        {2.437932684280377, -0.5757102638677087, -0.7891534853908165},
	} {
		p := compilePart(t, `{"key": "a", "rotation": {"from": "rotvec", "to": "`+form+`"}}`, 3, 1)
		got := make([]float64, p.Width())
		p.Values(got, []float64{0.3, -1.1, 2}, nil)
		checkNear(t, form, got, want)
	}
}

// TestRotationsSurviveEveryForm converts rotations to each form and back.
func TestRotationsSurviveEveryForm(t *testing.T) {
	forms := []string{
		FormQuat, FormQuatW, FormMatrix, FormRot6D, FormRot6DCol, "rotvec", "xyz", "ZYX", "zxz",
	}
	for _, v := range [][]float64{
		{0, 0, 0}, {0.3, -1.1, 2}, {3, 0.4, -0.2}, {-1e-6, 0, 1e-5}, {0, math.Pi, 0}, {1, 1, 1},
	} {
		want := quatMatrix(kernel.RotationQuat("rotvec", [3]float64(v)))
		for _, form := range forms {
			var there [9]float64
			writeRotation(form, &want, there[:FormWidth(form)])
			got := readRotation(form, there[:FormWidth(form)])
			checkNear(t, form, got[:], want[:])
			if form == "xyz" && math.Abs(there[1]) > math.Pi/2+1e-9 {
				t.Errorf("%v: middle angle %v, want within π/2", v, there[1])
			}
		}
	}
}

func checkNear(t *testing.T, name string, got, want []float64) {
	t.Helper()
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-9) {
			t.Errorf("%s: got %v, want %v", name, got, want)
			return
		}
	}
}

// TestPartFormulas compares the numbers of a row with those of the formula (vector.C2 to C4).
func TestPartFormulas(t *testing.T) {
	third := func(x float64) float64 { return float64(float32(x) / 3) }
	for _, x := range []struct {
		part   string
		row    []float64
		want   []float64
		beyond bool
	}{
		{part: `{"key": "a", "start": 1}`, row: []float64{1, 2, 3}, want: []float64{2, 3}},
		{part: `{"key": "a", "columns": [2, 0]}`, row: []float64{1, 2, 3}, want: []float64{3, 1}},
		{
			part: `{"key": "a", "relative": "difference", "absolute": [2]}`,
			row:  []float64{1.5, 2, 3}, want: []float64{1.4, 1.8, 3},
		},
		{ // C3: float32 rounds the stored number and the difference
			part: `{"key": "a", "stop": 1, "relative": "difference", "precision": "float32"}`,
			row:  []float64{0.3, 2, 3},
			want: []float64{float64(float32(0.3) - float32(0.1))},
		},
		{ // C3: mixed rounds only the stored numbers
			part: `{"key": "a", "stop": 1, "relative": "difference", "precision": "mixed"}`,
			row:  []float64{0.3, 2, 3},
			want: []float64{float64(float32(0.3)) - float64(float32(0.1))},
		},
		{
			part: `{"key": "a", "norm": {"mode": "min_max", "low": [0, 2, 5], "high": [2, 2, 9]}}`,
			row:  []float64{4, 2, 6}, want: []float64{3, 0, -0.5},
		},
		{
			part: `{"key": "a", "norm": {"mode": "quantiles", "low": [0, 2, 5], "high": [2, 2, 9],
				"clip": true, "constant": "lowest"}}`,
			row: []float64{4, 2, 6}, want: []float64{1, -1, -0.5},
		},
		{
			part: `{"key": "a", "norm": {"mode": "quantiles", "low": [0, 2, 5], "high": [2, 2, 9],
				"epsilon": 0.5}}`,
			row: []float64{4, 3, 6}, want: []float64{4/2.5*2 - 1, 3, 1/4.5*2 - 1},
		},
		{
			part: `{"key": "a", "norm": {"mode": "mean_std", "mean": [1, 1, 1], "std": [3, 0, 2],
				"constant": "keep", "precision": "float32"}}`,
			row: []float64{1.1, 7, 2}, want: []float64{third(float64(float32(1.1) - 1)), 7, 0.5},
		},
		{
			part: `{"key": "a", "norm": {"mode": "limits", "low": [0, 2, 5], "high": [4, 2.00001, 9],
				"constant": "shift", "constant_below": 1e-4}}`,
			row: []float64{1, 2.5, 6}, want: []float64{-0.5, 0.5, -0.5},
		},
		{
			part: `{"key": "a", "norm": {"mode": "min_max", "low": [1, 1, 1],
				"high": [1.00001, 1.0001, 2], "isclose": true}}`,
			row: []float64{2, 1, 2}, want: []float64{0, -1, 1},
		},
		{
			part: `{"key": "a", "norm": {"mode": "affine", "scale": [2, 0, 1], "offset": [1, 5, 0]}}`,
			row:  []float64{1, 2, 3}, want: []float64{3, 5, 3},
		},
		{
			part: `{"key": "a", "stop": 1, "norm": "sin_cos"}`, row: []float64{0.5, 0, 0},
			want: []float64{math.Sin(0.5), math.Cos(0.5)},
		},
		{part: `{"key": "a", "norm": "binary"}`, row: []float64{0.5, 0.6, 0}, want: []float64{0, 1, 0}},
		{
			part: `{"key": "a", "relative": "difference", "absolute": [2], "beyond": "neutral"}`,
			row:  []float64{1, 2, 3}, want: []float64{0, 0, 3}, beyond: true,
		},
		{
			part: `{"key": "a", "is_relative": [1], "beyond": "neutral", "pad_normalized": true,
				"norm": {"mode": "min_max", "low": [0, 1, 0], "high": [2, 2, 2]}}`,
			row: []float64{1, 2, 2}, want: []float64{0, 0, 1}, beyond: true,
		},
		{
			part: `{"key": "a", "beyond": "zero", "norm":
				{"mode": "min_max", "low": [0, 1, 0], "high": [2, 2, 2]}}`,
			row: []float64{1, 2, 2}, want: []float64{-1, -3, -1}, beyond: true,
		},
		{
			part: `{"key": "a", "beyond": "zero", "pad_normalized": true, "norm":
				{"mode": "min_max", "low": [0, 1, 0], "high": [2, 2, 2]}}`,
			row: []float64{1, 2, 2}, want: []float64{0, 0, 0}, beyond: true,
		},
	} {
		p := compilePart(t, x.part, 3, 1)
		got, scratch := make([]float64, p.Width()), make([]float64, 2*p.ValueWidth())
		p.Write(got, x.row, []float64{0.1, 0.2, 0.3}, 0, x.beyond, scratch)
		for i := range x.want {
			if math.Abs(got[i]-x.want[i]) > 1e-15 {
				t.Errorf("%s: got %v, want %v", x.part, got, x.want)
				break
			}
		}
	}
}

// TestPoseIsRelativeToTheReference moves a pose by T0 and expects T back.
func TestPoseIsRelativeToTheReference(t *testing.T) {
	const part = `{"key": "a", "relative": "pose", "reference": {"key": "b", "start": 1},
		"rotation": {"from": "rotvec", "to": "rotvec", "at": 3}}`
	p := compilePart(t, part, 8, 1)
	want := []float64{0.1, 0.2, -0.3, 0.2, 0.1, -0.4}
	first := readRotation("rotvec", []float64{1, -2, 0.5})
	then := readRotation("rotvec", want[3:])
	row := make([]float64, 8)
	at := first.apply([3]float64(want))
	for i := range at {
		row[i] = at[i] + float64(i)
	}
	turned := first.compose(&then)
	writeRotation("rotvec", &turned, row[3:6])
	row[6], row[7] = 7, 8 // numbers behind the pose stay absolute
	reference := []float64{9, 0, 1, 2, 1, -2, 0.5, 0, 0}
	got := make([]float64, 8)
	p.Values(got, row, reference)
	checkNear(t, "pose", got, append(want, 7, 8))
	p.Spec.Beyond = Neutral
	p.Write(got, row, reference, 0, true, make([]float64, 16))
	checkNear(t, "neutral pose", got, []float64{0, 0, 0, 0, 0, 0, 7, 8})
}

func TestStepsHaveTheirOwnBounds(t *testing.T) {
	p := compilePart(t, `{"key": "a", "norm":
		{"mode": "min_max", "low": [[0], [1]], "high": [[2], [5]]}}`, 1, 2)
	got := make([]float64, 1)
	for step, want := range []float64{1, -0.5} {
		if p.Normalize(got, []float64{2}, step); got[0] != want {
			t.Errorf("step %d: got %v, want %v", step, got[0], want)
		}
	}
}

func TestBadPartsAreRejected(t *testing.T) {
	for _, x := range []struct{ part, want string }{
		{`{"key": "a", "stop": 9}`, "columns"},
		{`{"key": "a", "columns": [-1]}`, "columns"},
		{`{"key": "a", "columns": []}`, "columns"},
		{`{"key": "a", "absolute": [3]}`, "absolute"},
		{`{"key": "a", "relative": "pose"}`, "relative"},
		{`{"key": "a", "relative": "both"}`, "relative"},
		{`{"key": "a", "relative": "difference", "reference": {"key": "b", "start": 2}}`, "reference"},
		{`{"key": "a", "rotation": {"from": "quat", "to": "xyz"}}`, "rotation"},
		{`{"key": "a", "rotation": {"from": "xyy", "to": "xyz"}}`, "rotation"},
		{`{"key": "a", "relative": "difference", "rotation": {"from": "xyz", "to": "xyz"}}`, "relative"},
		{`{"key": "a", "beyond": "drop"}`, "beyond"},
		{`{"key": "a", "precision": "half"}`, "precision"},
		{`{"key": "a", "norm": "minmax"}`, "norm"},
		{`{"key": "a", "norm": {"mode": "min_max", "low": [1], "high": [2]}}`, "3 numbers"},
		{`{"key": "a", "norm": {"mode": "min_max", "low": [1, 2, 3]}}`, "two vectors"},
		{
			`{"key": "a", "norm": {"mode": "min_max", "low": [1, 2, 3], "high": [1, 3, 4],
			"constant": "formula"}}`, "constant",
		},
		{`{"key": "a", "norm": {"mode": "mean_std", "isclose": true}}`, "isclose"},
		{`{"key": "a", "norm": {"mode": "min_max", "epsilon": -1}}`, "epsilon"},
	} {
		var s PartSpec
		if err := json.Unmarshal([]byte(x.part), &s); err != nil {
			t.Fatal(x.part, err)
		}
		if _, err := s.Compile(3, 3, 1); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: got %v, want an error about %q", x.part, err, x.want)
		}
	}
}

// FuzzParseSpec checks that no text makes a part panic.
func FuzzParseSpec(f *testing.F) {
	f.Add(`{"parts": [{"key": "a", "relative": "pose", "norm": {"mode": "limits", "low": [1],
		"high": [[2]]}, "rotation": {"from": "quat", "to": "matrix", "at": 3}}], "rows": [0, 1]}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSpec([]byte(text))
		if err != nil {
			return
		}
		row := slices.Repeat([]float64{0.5}, 12)
		for _, part := range s.Parts {
			p, err := part.Compile(12, 12, len(s.Offsets()))
			if err != nil {
				continue
			}
			n := 2 * p.ValueWidth()
			p.Write(make([]float64, n), row, row, 0, true, make([]float64, n))
		}
	})
}
