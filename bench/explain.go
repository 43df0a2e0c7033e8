package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache/loader"
)

// Explain describes in words which stage limits the run, with figures, and how much a faster stage
// would help.
func Explain(k *Keys, w *Workload, outs []Outcome) (lines []string) {
	if k.Stages == nil || len(outs) == 0 {
		return []string{"the runner reported no stage times, so there is nothing to explain"}
	}
	st := Stages{}
	var samples, seconds, cpu, wait float64
	for _, o := range outs {
		for name, s := range stagesOf(o.StatsOpen, o.StatsClose) {
			st[name] += s
		}
		samples, seconds, cpu, wait = samples+float64(o.Samples), seconds+o.Seconds, cpu+
			o.CPUSeconds, wait+o.WaitS
	}
	threads, busy, store := float64(max(w.Workers, 1)), st.busySeconds(), st["store"]
	stages := slices.SortedFunc(
		slices.Values(workStages),
		func(a, b string) int { return cmp.Compare(st[b], st[a]) },
	)
	top, load := stages[0], busy/(threads*seconds)
	// A stage that reads also waits: its time minus the CPU time is waiting.
	inside := k.Loader == "streaming" && store == 0 && cpu < 0.6*busy
	rate := samples * float64(len(outs)) / seconds // over all ranks
	say := func(format string, a ...any) { lines = append(lines, fmt.Sprintf(format, a...)) }
	faster := func(what string, times float64) {
		say("if %s: %.0f samples/s (%.2f times)", what, rate*times, times)
	}
	say(
		"%.1f samples/s over %.1f s; %.3f CPU s per 1,000 samples; the consumer waited %.0f %% of "+
			"the window",
		rate,
		seconds/float64(len(outs)),
		1e3*cpu/samples,
		100*wait/seconds,
	)
	for _, s := range stages {
		if 1e6*st[s] > samples {
			say(
				"  %-8s %8.3f s per 1,000 samples, %3.0f %% of the work of the threads",
				s,
				1e3*st[s]/samples,
				100*st[s]/busy,
			)
		}
	}
	if store > 0 {
		say("  %-8s %8.3f s per 1,000 samples, beside them", "store", 1e3*store/samples)
	}
	// If the threads are busy for the whole window, a stage limits the run. Otherwise the consumer
	// or the store does.
	switch {
	case wait < 0.1*seconds:
		say(
			"limit: the consumer. The next batch was there in %.0f %% of the time; a faster "+
				"loader brings nothing here",
			100*(1-wait/seconds),
		)
	case store > 0 && load < 0.7:
		say("limit: the store. The %.0f threads worked %.0f %% of the time", threads, 100*load)
		faster("the bytes came at once", 1/load)
	case inside:
		say(
			"limit: the store. The threads took only %.0f %% of their time from the cores: the "+
				"rest is waiting for bytes, inside %s",
			100*cpu/busy,
			top,
		)
		faster("the bytes came at once", busy/cpu)
	default:
		say(
			"limit: %s. %.0f %% of the time of the %.0f threads is work, and %s is %.0f %% of it",
			top,
			100*min(load, 1),
			threads,
			top,
			100*st[top]/busy,
		)
		if cpu < 0.6*busy {
			say(
				"  but they took only %.0f %% of that time from the cores: other processes hold "+
					"them",
				100*cpu/busy,
			)
		}
		if load < 0.5 {
			say(
				"  the threads are idle for %.0f %% of the time although the consumer waits: the "+
					"horizon is short of work (raise prefetch or batch_size), or other processes "+
					"take the cores",
				100*(1-load),
			)
		}
	}
	for _, s := range stages {
		if !inside && st[s] > 0 && st[s] >= 0.05*busy {
			faster(s+" were free", busy/max(busy-st[s], 1e-9))
		}
	}
	if k.WaitPct != nil {
		say(
			"a consumer that takes %.1f ms a batch waits %.1f %% of its time",
			k.ConsumerStepMS,
			*k.WaitPct,
		)
	}
	return lines
}

// Stages holds the seconds of each stage in a window, summed over threads. The keys are workStages
// and three more. store is the time to read packets of remote files, which overlaps other work.
// wait is the time that the consumer waits for a batch. ahead is the time that the planner waits
// because the whole read-ahead is planned.
type Stages map[string]float64

// workStages are the stages in which threads do work. plan is order, frame positions and decode
// plans. gather is columns and text. decode turns packets into frames, convert turns frames into
// pixels, and copy turns cached frames into pixels.
var workStages = []string{"plan", "gather", "decode", "convert", "copy"}

// stagesOf returns the time of each stage between two readings of the loader's counters.
func stagesOf(a, b *loader.Stats) Stages {
	if a == nil || b == nil {
		return nil
	}
	return Stages{
		"plan":    b.Plan - a.Plan,
		"store":   b.Fetch - a.Fetch,
		"gather":  b.Gather - a.Gather,
		"decode":  b.Decode - a.Decode,
		"convert": b.Convert - a.Convert,
		"copy":    b.Copy - a.Copy,
		"wait":    b.WaitData - a.WaitData,
		"ahead":   b.WaitConsumer - a.WaitConsumer,
	}
}

// busySeconds returns the total time of the working stages.
func (s Stages) busySeconds() (sum float64) {
	for _, name := range workStages {
		sum += s[name]
	}
	return sum
}

// batchesReady returns how many batches of frames the loader has prepared but not delivered. It
// returns nil for samples without frames.
func batchesReady(s *loader.Stats, w *Workload, cameras int) *float64 {
	each := float64(cameras * max(w.Window, 1))
	if s == nil || each == 0 || w.BatchSize == 0 {
		return nil
	}
	v := max(0, float64(s.Frames)/each-float64(s.Samples)) / float64(w.BatchSize)
	return &v
}
