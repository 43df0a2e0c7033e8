package bench

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache/bench/report"
)

// keysOf makes the row of one rank from what its runner said.
func keysOf(p *point, rank int, o *Outcome, facts runFacts) *Keys {
	w := &p.work
	rate := float64(o.Samples) / o.Seconds
	g := gaps(o.ArrivalsUS, o.ArrivalRows)
	k := &Keys{
		Scenario: p.scenario.Name, Rank: rank, WorldSize: max(w.World, 1), Loader: p.scenario.Loader, BatchSize: w.BatchSize, NumWorkers: w.Workers,
		EpisodePoolSize: w.PoolEpisodes, MaxBufferInputShards: w.PoolEpisodes,
		NumCameras: o.Cameras, ImageShape: o.ImageShape, FPS: o.FPS, PeakRSSGB: o.RSSPeakMB * (1 << 20) / 1e9, SamplesMeasured: o.Samples, SteadyWindowS: o.Seconds,
		FirstBatchLatencyS: o.FirstBatchS, SamplesPerS: rate, DecodedFramesPerS: rate * float64(o.Cameras), SingleProcSamplesPerS: o.SingleProc,
		ShuffleRandomnessFrac: o.DistinctFrac, P50SampleLatencyMS: quantile(g, 0.5), P95SampleLatencyMS: quantile(g, 0.95), P99SampleLatencyMS: quantile(g, 0.99),
		TotalTimeS: o.TotalTimeS, PSSPeakGB: o.PSSPeakMB * (1 << 20) / 1e9, OpenS: o.OpenS, IndexBuildS: o.IndexBuildS,
		CPUPerSample: o.CPUSeconds / float64(o.Samples), RandomnessIdeal: o.IdealFrac, NeighbourShare: o.NeighbourShare,
		OrderSHA256: o.OrderSHA256, OrderSamples: o.OrderSamples, EpochsFinished: o.EpochsFinished,
		WaitPct: o.WaitPct, H2DWaitPct: o.H2DWaitPct, Errors: []string{}, Versions: o.Versions,
		Runner: p.runner, Setting: fmt.Sprintf("%d workers, prefetch %d, shuffle %s", w.Workers, w.Prefetch, w.Shuffle), Shuffle: w.Shuffle, Cache: w.Cache,
		QueueBatches: o.QueueBatches, ConsumerStepMS: 1e3 * o.ConsumerStepS, HeadspaceSamplesPS: o.Headspace, DeviceReadBytes: o.DeviceReadBytes, Notes: []string{},
	}
	if p.scenario.Loader == "map_style" && o.LoadedEpisodes > 0 {
		k.LoadedEpisodes = &o.LoadedEpisodes
	}
	if o.EpochsFinished > 0 {
		k.CoverageMin, k.CoverageMax = &o.CoverageMin, &o.CoverageMax
	}
	per := func(v float64) *float64 { return &v }
	if o.IdealFrac > 0 {
		k.RandomnessVsIdeal = per(o.DistinctFrac / o.IdealFrac)
	}
	if o.Seen.ServerBytes > 0 {
		k.BytesReadPerSample = per(float64(o.Seen.ServerBytes) / float64(o.Samples))
		k.RequestsPerSample = per(float64(o.Seen.ServerRequests) / float64(o.Samples))
	} else if o.BytesRead > 0 || p.scenario.Store != "" {
		k.BytesReadPerSample = per(float64(o.BytesRead) / float64(o.Samples))
	}
	if a, b := o.StatsOpen, o.StatsClose; a != nil && b != nil {
		k.FramesDeliveredPerS = per(float64(b.Frames-a.Frames) / o.Seconds)
		k.FramesDecodedPerS = per(float64(b.FramesDecoded-a.FramesDecoded) / o.Seconds)
		if b.Frames > a.Frames {
			k.BytesNeededPerSample = per(float64(b.BytesNeeded-a.BytesNeeded) / float64(o.Samples)) // rows are added by the builder
		}
		st := stagesOf(a, b)
		k.Stages = &st
		if all := st.fetch() + st.decode(); all > 0 {
			k.FetchPct, k.DecodePct = per(100*st.fetch()/all), per(100*st.decode()/all)
		}
		if len(k.QueueBatches) == 0 || k.QueueBatches[0] == nil {
			k.QueueBatches = []*float64{madeAhead(a, w, o.Cameras), madeAhead(b, w, o.Cameras)}
		}
		k.SkippedEpisodes = len(b.BadEpisodes)
		for _, e := range b.BadEpisodes {
			k.Errors = append(k.Errors, fmt.Sprintf("episode %d skipped: %s", e.Episode, e.Error))
		}
	}
	switch {
	case w.World > 1: // a rank has its share of an epoch: the merged row counts
		k.CoverageMin, k.CoverageMax = nil, nil
	case k.SkippedEpisodes > 0:
		k.Notes = append(k.Notes, "episodes were skipped: what they lack is not counted as lost")
	default:
		k.SamplesLost = o.SamplesLost - int64(o.EpochsFinished)*dropsOfEpoch(facts.samples, w.BatchSize, 1, w.DropLast)
		k.SamplesDoubled = o.SamplesDoubled
	}
	return k
}

// mergedKeys is the row of all ranks: Σ samples ÷ common window, and the slowest rank beside it.
func mergedKeys(p *point, ranks []*Keys, outs []Outcome, facts runFacts) *Keys {
	k := *ranks[0]
	k.Rank = -1
	c, err := commonWindow(outs)
	if err != nil {
		k.Failed = err.Error()
		k.Errors = append(slices.Clone(k.Errors), err.Error())
		return &k
	}
	k.SamplesMeasured, k.SteadyWindowS, k.SamplesPerS = c.Samples, c.Seconds, float64(c.Samples)/c.Seconds
	k.DecodedFramesPerS = k.SamplesPerS * float64(k.NumCameras)
	k.P50SampleLatencyMS, k.P95SampleLatencyMS, k.P99SampleLatencyMS = quantile(c.Gaps, 0.5), quantile(c.Gaps, 0.95), quantile(c.Gaps, 0.99)
	k.RankSamplesPerS, k.SlowestRank, k.SlowestSamplesPerS = c.Rates, &c.Slowest, &c.Rates[c.Slowest]
	k.Setting = fmt.Sprintf("%d ranks; %s", len(outs), k.Setting)
	k.OrderSHA256, k.OrderSamples, k.EpochsFinished = "", 0, 0
	// Times: the slowest rank's. Memory, rates and counts: the sum. Shares: the mean. Per sample: over all samples of all windows.
	n := float64(len(outs))
	var samples, cpu float64
	k.PeakRSSGB, k.PSSPeakGB, k.DeviceReadBytes, k.SkippedEpisodes, k.ShuffleRandomnessFrac, k.NeighbourShare = 0, 0, 0, 0, 0, 0
	k.Errors, k.Notes = []string{}, []string{}
	for i, r := range ranks {
		o := &outs[i]
		samples, cpu = samples+float64(o.Samples), cpu+o.CPUSeconds
		k.PeakRSSGB += r.PeakRSSGB
		k.PSSPeakGB += r.PSSPeakGB
		k.DeviceReadBytes += r.DeviceReadBytes
		k.SkippedEpisodes = max(k.SkippedEpisodes, r.SkippedEpisodes)
		k.ShuffleRandomnessFrac += r.ShuffleRandomnessFrac / n
		k.NeighbourShare += r.NeighbourShare / n
		k.FirstBatchLatencyS, k.TotalTimeS = max(k.FirstBatchLatencyS, r.FirstBatchLatencyS), max(k.TotalTimeS, r.TotalTimeS)
		k.OpenS, k.IndexBuildS = max(k.OpenS, r.OpenS), max(k.IndexBuildS, r.IndexBuildS)
		for _, e := range r.Errors {
			k.Errors = append(k.Errors, fmt.Sprintf("rank %d: %s", i, e))
		}
		k.Notes = append(k.Notes, r.Notes...)
	}
	k.CPUPerSample = cpu / samples
	pick := func(f func(*Keys) *float64, join func(vs []float64) float64) *float64 {
		var vs []float64
		for _, r := range ranks {
			if v := f(r); v != nil {
				vs = append(vs, *v)
			}
		}
		if len(vs) < len(ranks) {
			return nil
		}
		v := join(vs)
		return &v
	}
	sum := func(vs []float64) (s float64) {
		for _, v := range vs {
			s += v
		}
		return s
	}
	mean := func(vs []float64) float64 { return sum(vs) / float64(len(vs)) }
	weighed := func(vs []float64) (s float64) {
		for i, v := range vs {
			s += v * float64(outs[i].Samples) / samples
		}
		return s
	}
	k.SingleProcSamplesPerS = pick(func(r *Keys) *float64 { return r.SingleProcSamplesPerS }, mean)
	k.FetchPct = pick(func(r *Keys) *float64 { return r.FetchPct }, mean)
	k.DecodePct = pick(func(r *Keys) *float64 { return r.DecodePct }, mean)
	k.FramesDeliveredPerS = pick(func(r *Keys) *float64 { return r.FramesDeliveredPerS }, sum)
	k.FramesDecodedPerS = pick(func(r *Keys) *float64 { return r.FramesDecodedPerS }, sum)
	k.BytesReadPerSample = pick(func(r *Keys) *float64 { return r.BytesReadPerSample }, weighed)
	k.BytesNeededPerSample = pick(func(r *Keys) *float64 { return r.BytesNeededPerSample }, weighed)
	k.RequestsPerSample = pick(func(r *Keys) *float64 { return r.RequestsPerSample }, weighed)
	k.WaitPct = pick(func(r *Keys) *float64 { return r.WaitPct }, slices.Max[[]float64])
	k.H2DWaitPct = pick(func(r *Keys) *float64 { return r.H2DWaitPct }, slices.Max[[]float64])
	if k.RandomnessIdeal > 0 {
		v := k.ShuffleRandomnessFrac / k.RandomnessIdeal
		k.RandomnessVsIdeal = &v
	}
	return &k
}

// spread is what the repeats gave.
func (p *point) spread() map[string]report.Spread {
	s := map[string]*report.Spread{}
	add := func(name string, v float64) {
		if s[name] == nil {
			s[name] = &report.Spread{}
		}
		s[name].Add(v)
	}
	for _, outs := range p.runs {
		var samples, cpu, first, pss float64
		for i := range outs {
			o := &outs[i]
			samples, cpu, pss = samples+float64(o.Samples), cpu+o.CPUSeconds, pss+o.PSSPeakMB*(1<<20)/1e9
			first = max(first, o.FirstBatchS)
		}
		add("samples_per_s", rate(outs))
		add("cpu_s_per_sample", cpu/samples)
		add("first_batch_latency_s", first)
		add("pss_peak_gb", pss)
	}
	out := map[string]report.Spread{}
	for k, v := range s {
		out[k] = *v
	}
	return out
}
