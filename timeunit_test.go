package robocache_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

func ramp(from, step float64) []float64 {
	out := make([]float64, 30)
	for i := range out {
		out[i] = from + float64(i)*step
	}
	return out
}

// TestInferTimeUnit checks that magnitude, nominal rate and epoch decide. An open decision is an
// error that names the option.
func TestInferTimeUnit(t *testing.T) {
	hz := robocache.Rate{Num: 200, Den: 1}
	for name, c := range map[string]struct {
		values []float64
		usual  string
		rate   robocache.Rate
		want   string // "" is an error
	}{
		"s":                {ramp(0, 1./30), "s", robocache.Rate{}, "s"},
		"ms":               {ramp(0, 33), "", robocache.Rate{}, "ms"},
		"ms of floats":     {ramp(0, 100./3), "s", robocache.Rate{}, "ms"},
		"us":               {ramp(0, 33_333), "", robocache.Rate{}, "us"},
		"ns":               {ramp(0, 33_333_333), "", robocache.Rate{}, "ns"},
		"ns since boot":    {ramp(1.5e12, 33_333_333), "s", robocache.Rate{}, "ns"},
		"epoch s":          {ramp(1.7e9, 1./30), "s", robocache.Rate{}, "s"},
		"epoch ms, 200 Hz": {ramp(1.7e12, 5), "s", robocache.Rate{}, "ms"},
		"epoch us, 200 Hz": {ramp(1.7e15, 5000), "", robocache.Rate{}, "us"},
		"epoch ns, 1 kHz":  {ramp(1.7e18, 1e6), "", robocache.Rate{}, "ns"},
		"one epoch value":  {[]float64{1.7e12}, "s", robocache.Rate{}, "ms"},
		"10 kHz":           {ramp(0, 1e-4), "s", robocache.Rate{}, "s"},
		"1 Hz":             {ramp(0, 1), "s", robocache.Rate{}, "s"},
		"5: s or ms":       {ramp(0, 5), "s", robocache.Rate{}, ""},
		"5 at 200 Hz":      {ramp(0, 5), "s", hz, "ms"},
		"5000 at 200 Hz":   {ramp(0, 5000), "s", hz, "us"},
		"5e6: us or ns":    {ramp(0, 5e6), "", robocache.Rate{}, ""},
		"5e6 usually ns":   {ramp(0, 5e6), "ns", robocache.Rate{}, "ns"},
		"frame numbers":    {ramp(0, 1), "", robocache.Rate{}, ""},
		"an hour":          {ramp(0, 3.6e12), "", robocache.Rate{}, ""},
		"1e-9":             {ramp(0, 1e-9), "s", robocache.Rate{}, ""},
	} {
		g, err := robocache.InferTimeUnit(c.values, c.usual, c.rate)
		switch {
		case c.want != "" && (err != nil || g.Unit != c.want):
			t.Errorf("%s: %q, %v; want %q", name, g.Unit, err, c.want)
		case c.want == "" && (!errors.Is(err, robocache.ErrMisuse) ||
			!errors.Is(err, robocache.ErrNoClock)):
			t.Errorf("%s: %q, %v; want Misuse", name, g.Unit, err)
		case c.want == "" && !strings.Contains(err.Error(), `Options: {"timestamp_unit": "ms"}`):
			t.Errorf("%s: %v", name, err)
		}
	}
	if g, err := robocache.InferTimeUnit([]float64{0, 0, 0}, "s", hz); err != nil || g.Unit != "" {
		t.Errorf("no steps: %q, %v", g.Unit, err)
	}
}

// TestCoarseEpoch checks that times since 1970 that float32 has rounded are an error in every unit.
func TestCoarseEpoch(t *testing.T) {
	for _, unit := range []string{"s", "ms", "us", "ns"} {
		var exact, rounded []float64
		for i := range 300 {
			v := (1.7e9 + float64(i)) * 1e9 / float64(robocache.TimeUnits[unit])
			exact, rounded = append(exact, v), append(rounded, float64(float32(v)))
		}
		if g, err := robocache.InferTimeUnit(exact, "s", robocache.Rate{}); err != nil ||
			g.Unit != unit || g.Coarse {
			t.Errorf("%s: %+v, %v", unit, g, err)
		}
		for _, values := range [][]float64{rounded, rounded[:2]} {
			g, err := robocache.InferTimeUnit(values, "s", robocache.Rate{Num: 1, Den: 1})
			if !errors.Is(err, robocache.ErrNoClock) || !g.Coarse ||
				!strings.Contains(err.Error(), "float32") {
				t.Errorf("%s: %+v, %v", unit, g, err)
			}
		}
	}
	if g, err := robocache.InferTimeUnit([]float64{1.7e9, 1.7e9 + 1, 1.7e9 + 2}, "s",
		robocache.Rate{}); err != nil || g.Unit != "s" {
		t.Error(g, err)
	}
}
