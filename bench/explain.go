package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache/loader"
)

// Explain says in words which stage limits a run, with the numbers, and what a faster one would bring.
func Explain(k *Keys, w *Workload, outs []Outcome) []string {
	if k.Stages == nil || len(outs) == 0 {
		return []string{"the runner says no stage times: nothing to explain"}
	}
	var st Stages
	var samples, seconds, cpu, wait float64
	for _, o := range outs {
		st = st.plus(stagesOf(o.StatsOpen, o.StatsClose))
		samples, seconds, cpu, wait = samples+float64(o.Samples), seconds+o.Seconds, cpu+o.CPUSeconds, wait+o.WaitS
	}
	n := float64(len(outs))
	wall, threads := seconds/n, float64(max(w.Workers, 1))
	busy := st.Busy()
	type stage struct {
		name string
		s    float64
	}
	stages := []stage{{"plan", st.Plan}, {"gather", st.Gather}, {"decode", st.Decode}, {"convert", st.Convert}, {"copy", st.Copy}}
	slices.SortStableFunc(stages, func(a, b stage) int { return cmp.Compare(b.s, a.s) })
	waits := k.Loader == "streaming" && st.Store == 0 && cpu < 0.6*busy // the stage that reads also waits: its time less the CPU's is waiting
	var lines []string
	say := func(format string, a ...any) { lines = append(lines, fmt.Sprintf(format, a...)) }
	rate := samples / wall // of all ranks
	say("%.1f samples/s over %.1f s; %.3f CPU s per 1,000 samples; the taker waited %.0f %% of the window", rate, wall, 1e3*cpu/samples, 100*wait/seconds)
	for _, s := range stages {
		if 1e6*s.s > samples {
			say("  %-8s %8.3f s per 1,000 samples, %3.0f %% of the work of the threads", s.name, 1e3*s.s/samples, 100*s.s/busy)
		}
	}
	if st.Store > 0 {
		say("  %-8s %8.3f s per 1,000 samples, beside them", "store", 1e3*st.Store/samples)
	}
	// Threads that are busy for the whole window are what limits; else it is the taker, or waiting for the store.
	load := busy / (threads * seconds)
	top := stages[0]
	switch {
	case wait < 0.1*seconds:
		say("limit: the consumer. The next batch was there in %.0f %% of the time; a faster loader brings nothing here", 100*(1-wait/seconds))
	case st.Store > 0 && load < 0.7:
		say("limit: the store. The %d threads worked %.0f %% of the time; reading took %.2f s per 1,000 samples, several reads at once", int(threads), 100*load, 1e3*st.Store/samples)
		say("if the bytes came at once: %.0f samples/s (%.2f times)", rate/load, 1/load)
	case waits:
		say("limit: the store. The threads were at it for %.2f s per 1,000 samples, and took only %.2f CPU s: the rest is waiting for bytes, inside %s", 1e3*busy/samples, 1e3*cpu/samples, top.name)
	default:
		say("limit: %s. %.0f %% of the time of the %d threads is work, and %s is %.0f %% of it", top.name, 100*min(load, 1), int(threads), top.name, 100*top.s/busy)
		if cpu < 0.6*busy {
			say("  but they took only %.0f %% of that time from the cores: other processes hold them", 100*cpu/busy)
		}
		if load < 0.5 {
			say("  the threads are idle for %.0f %% of the time although the taker waits: the horizon is short of work (raise prefetch or batch_size), or other processes take the cores", 100*(1-load))
		}
	}
	if waits {
		say("if the bytes came at once: %.0f samples/s (%.2f times)", rate*busy/cpu, busy/cpu)
	}
	for _, s := range stages {
		if waits || s.s <= 0 || s.s < 0.05*busy {
			continue
		}
		free := rate * busy / max(busy-s.s, 1e-9)
		if k.HeadspaceSamplesPS > 0 {
			free = min(free, k.HeadspaceSamplesPS)
		}
		say("if %s were free: %.0f samples/s (%.2f times)", s.name, free, free/rate)
	}
	if k.HeadspaceSamplesPS > 0 {
		say("headspace: the same loop on one batch that is there makes %.0f samples/s, %.0f times this", k.HeadspaceSamplesPS, k.HeadspaceSamplesPS/rate)
	}
	if k.WaitPct != nil {
		say("a consumer that takes %.1f ms a batch waits %.1f %% of its time", k.ConsumerStepMS, *k.WaitPct)
	}
	return lines
}

// Stages are seconds of work in a window, summed over threads.
type Stages struct {
	Plan    float64 `json:"plan"`    // order, places, decode plans
	Store   float64 `json:"store"`   // reading packets of remote files: waiting, beside the other work
	Gather  float64 `json:"gather"`  // columns and text
	Decode  float64 `json:"decode"`  // packets to frames
	Convert float64 `json:"convert"` // frames to pixels
	Copy    float64 `json:"copy"`    // kept frames to pixels
	Wait    float64 `json:"wait"`    // of the taker, for a batch
	Ahead   float64 `json:"ahead"`   // of the planner: all that may be prefetched is planned
}

// stagesOf is what was done between two looks at a loader.
func stagesOf(a, b *loader.Stats) Stages {
	if a == nil || b == nil {
		return Stages{}
	}
	return Stages{Plan: b.Plan - a.Plan, Store: b.Fetch - a.Fetch, Gather: b.Gather - a.Gather, Decode: b.Decode - a.Decode, Convert: b.Convert - a.Convert, Copy: b.Copy - a.Copy,
		Wait: b.WaitData - a.WaitData, Ahead: b.WaitConsumer - a.WaitConsumer}
}

// Busy is the work of threads.
func (s Stages) Busy() float64 { return s.Plan + s.Gather + s.Decode + s.Convert + s.Copy }

// fetch is the work that finds and brings bytes; decode makes pixels of them.
func (s Stages) fetch() float64  { return s.Plan + s.Store + s.Gather }
func (s Stages) decode() float64 { return s.Decode + s.Convert + s.Copy }

func (s Stages) plus(o Stages) Stages {
	return Stages{s.Plan + o.Plan, s.Store + o.Store, s.Gather + o.Gather, s.Decode + o.Decode, s.Convert + o.Convert, s.Copy + o.Copy, s.Wait + o.Wait, s.Ahead + o.Ahead}
}

// madeAhead is how many batches' worth of frames a loader has made and not handed out; nil where a sample has none.
func madeAhead(s *loader.Stats, w *Workload, cameras int) *float64 {
	each := float64(cameras * max(w.Window, 1))
	if s == nil || each == 0 || w.BatchSize == 0 {
		return nil
	}
	v := max(0, float64(s.Frames)/each-float64(s.Samples)) / float64(w.BatchSize)
	return &v
}
