package stats_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/rlds"
	"github.com/goatnote-inc/robocache/stats"
)

// windowRows returns the windows of a vector in float32, row after row, by the definition.
func windowRows(
	t *testing.T, ds robocache.Dataset, v *stats.WindowVector, episodes []int,
) (steps [][]byte, width int) {
	t.Helper()
	steps = make([][]byte, len(v.Rows))
	for _, e := range episodes {
		n := ds.Len(e)
		read := func(key string) [][]float64 {
			f := ds.Info().Feature(key)
			raw := make([]byte, n*f.RowBytes())
			if err := ds.Gather(t.Context(), key, robocache.RowsOf(e, 0, n), raw); err != nil {
				t.Fatal(err)
			}
			rows := make([][]float64, n)
			for i := range rows {
				rows[i] = robocache.Float64s(nil, f.DType, raw[i*f.RowBytes():(i+1)*f.RowBytes()])
			}
			return rows
		}
		for at := v.DropFirst; at < n-v.DropLast; at++ {
			isDropped := false
			for _, k := range v.Rows {
				isDropped = isDropped || v.Beyond == stats.BeyondDrop && (at+k < 0 || at+k >= n)
			}
			for s, k := range v.Rows {
				isOmitted := v.Beyond == stats.BeyondOmit && (at+k < 0 || at+k >= n)
				if isDropped || isOmitted {
					continue
				}
				width = 0
				for _, p := range v.Parts {
					row := read(p.Key)[min(max(at+k, 0), n-1)]
					for i, c := range p.Columns {
						x := float64(float32(row[c]))
						if p.Reference != "" && p.ReferenceColumns[i] >= 0 {
							at := min(max(at+p.ReferenceRow, 0), n-1)
							x -= float64(float32(read(p.Reference)[at][p.ReferenceColumns[i]]))
						}
						bits := math.Float32bits(float32(x))
						steps[s] = binary.LittleEndian.AppendUint32(steps[s], bits)
						width++
					}
				}
			}
		}
	}
	return steps, width
}

func TestWindowStatisticsEqualThoseOfMaterializedWindows(t *testing.T) {
	ds, _, _ := open(t, "bridge_rlds")
	state := "observation.state"
	if ds.Info().Feature(state) == nil {
		t.Fatal(ds.Info().Keys())
	}
	parts := []stats.WindowPart{
		{Key: "action", Columns: []int{6, 0}, Round: true},
		{
			Key: "action", Columns: []int{1, 2, 6}, Reference: state,
			ReferenceColumns: []int{2, 0, -1}, ReferenceRow: -1,
			Round: true,
		},
	}
	for _, v := range []stats.WindowVector{
		{Rows: []int{0}},
		{Rows: []int{-3, 0, 1, 2, 7, 8, 30}},
		{Rows: []int{-12, -2, 2, 12}, Beyond: stats.BeyondOmit},
		{Rows: []int{-1, 0, 4}, Beyond: stats.BeyondDrop, DropFirst: 2, DropLast: 1},
		{Rows: []int{-12, 0, 5, 9}, PerStep: true},
		{Rows: []int{-1, 5}, PerStep: true, Beyond: stats.BeyondOmit},
	} {
		v.Parts = parts
		episodes := []int{0, 3, 4}
		steps, width := windowRows(t, ds, &v, episodes)
		if !v.PerStep {
			var all []byte
			for _, s := range steps {
				all = append(all, s...)
			}
			steps = [][]byte{all}
		}
		for _, budget := range []int64{0, 2000} { // 2000: several blocks
			got, err := stats.Windows(t.Context(), ds,
				map[string]*stats.WindowVector{"x": &v},
				stats.WindowOptions{Episodes: episodes, Budget: budget})
			if err != nil {
				t.Fatal(err)
			}
			for s, raw := range steps {
				want, _, err := stats.NumericBytes(
					t.Context(),
					robocache.Float32,
					[]int{width},
					raw,
					0,
				)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range stats.Names {
					if name == "count" {
						continue
					}
					g := stats.Vector(got["x"], name)[s*width : (s+1)*width]
					for c, w := range stats.Vector(want, name) {
						isSum := name == "mean" || name == "std"
						if g[c] != w && !(isSum && math.Abs(g[c]-w) < 1e-12) {
							t.Errorf("%+v step %d: %s[%d] = %v, want %v", v, s, name, c, g[c], w)
						}
					}
				}
			}
		}
	}
}

func TestWindowStatisticsOfAWrongVectorAreRefused(t *testing.T) {
	ds, _, _ := open(t, "bridge_rlds")
	for name, v := range map[string]stats.WindowVector{
		"unknown stream": {Parts: []stats.WindowPart{{Key: "actoin"}}},
		"column":         {Parts: []stats.WindowPart{{Key: "action", Columns: []int{7}}}},
		"no rows":        {Parts: []stats.WindowPart{{Key: "action"}}, Rows: []int{}},
		"no parts":       {},
		"rule":           {Parts: []stats.WindowPart{{Key: "action"}}, Beyond: "wrap"},
		"references": {Parts: []stats.WindowPart{{
			Key: "action", Reference: "action", ReferenceColumns: []int{1},
		}}},
	} {
		_, err := stats.Windows(t.Context(), ds, map[string]*stats.WindowVector{"x": &v},
			stats.WindowOptions{})
		if !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
