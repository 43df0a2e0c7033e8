package bench

import (
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/loader"
)

// Known stage times give the expected words and figures.
func TestExplain(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	base := Outcome{
		Samples:    1000,
		Seconds:    10,
		CPUSeconds: 19,
		WindowFigures: WindowFigures{
			WaitS:     9.9,
			StatsOpen: &loader.Stats{},
		},
	}
	for _, c := range []struct {
		name   string
		stats  loader.Stats
		loader string
		change func(*Outcome)
		want   []string
		never  string
	}{
		{
			"decode",
			loader.Stats{Decode: 15, Convert: 4, Gather: 1},
			"map_style",
			nil,
			[]string{
				"100.0 samples/s",
				"limit: decode. 100 % of the time of the 2 threads",
				"decode is 75 %",
				"if decode were free: 400 samples/s (4.00 times)",
				"if convert were free: 125 samples/s",
			},
			"if gather were free: 1000",
		},
		{
			"convert",
			loader.Stats{Decode: 5, Convert: 12, Gather: 1},
			"map_style",
			nil,
			[]string{"limit: convert"},
			"limit: decode",
		},
		{
			"store",
			loader.Stats{Decode: 4, Fetch: 90},
			"streaming",
			func(o *Outcome) { o.CPUSeconds = 4 },
			[]string{
				"limit: the store. The 2 threads worked 20 % of the time",
				"if the bytes came at once: 500 samples/s",
			},
			"limit: decode",
		},
		{
			"store inside a stage",
			loader.Stats{Gather: 20},
			"streaming",
			func(o *Outcome) { o.CPUSeconds = 2 },
			[]string{
				"limit: the store",
				"inside gather",
				"if the bytes came at once: 1000 samples/s",
			},
			"if gather were free",
		},
		{
			"consumer",
			loader.Stats{Decode: 15},
			"map_style",
			func(o *Outcome) { o.WaitS = 0.1 },
			[]string{"limit: the consumer", "99 %"},
			"limit: decode",
		},
		{
			"cores taken",
			loader.Stats{Decode: 20},
			"map_style",
			func(o *Outcome) { o.CPUSeconds = 8 },
			[]string{"limit: decode", "40 % of that time from the cores"},
			"the store",
		},
		{
			"starved",
			loader.Stats{Decode: 6},
			"map_style",
			func(o *Outcome) { o.CPUSeconds = 6 },
			[]string{"the threads are idle for 70 %"},
			"the store",
		},
	} {
		o := base
		o.StatsClose = &c.stats
		if c.change != nil {
			c.change(&o)
		}
		st := stagesOf(o.StatsOpen, o.StatsClose)
		k := &Keys{Loader: c.loader, Stages: st, WaitPct: f(1)}
		text := strings.Join(Explain(k, &Workload{Workers: 2}, []Outcome{o}), "\n")
		for _, w := range append(c.want, "waits 1.0 %") {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %q in\n%s", c.name, w, text)
			}
		}
		if strings.Contains(text, c.never) {
			t.Errorf("%s: %q in\n%s", c.name, c.never, text)
		}
	}
	if got := Explain(&Keys{}, &Workload{}, nil); len(got) != 1 {
		t.Errorf("%v", got)
	}
}
