package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// builder knows the set, and turns what runners said and what was seen of them into results.
type builder struct {
	s       *Suite
	ref     *reference
	machine report.Machine
	lib     *video.Library
	st      store.Store
	files   int
	needed  map[string]*float64 // bytes a sample, by what decides them
}

func newBuilder(ctx context.Context, ds robocache.Dataset, s *Suite) (*builder, error) {
	j := &builder{s: s, machine: report.ThisMachine(s.Program), needed: map[string]*float64{}}
	list, err := s.Base.episodes(ds.Info())
	if err != nil {
		return nil, err
	}
	if j.ref, err = newReference(ctx, ds, s.folder(), &s.Base); err != nil {
		return nil, err
	}
	// Only video lies in files beside; a recording or an HDF5 file is no folder of such.
	if slices.ContainsFunc(ds.Info().Features, func(f robocache.Feature) bool { return f.Kind == robocache.KindVideo }) {
		if j.st, err = store.Open(s.URI); err != nil {
			return nil, err
		}
	}
	j.lib = video.NewLibrary(func(ctx context.Context, path string) (robocache.Ranged, error) { return j.st.Open(ctx, path) }, 64<<20)
	seen := map[string]bool{}
	refs := make([]robocache.FrameRef, 1)
	for _, key := range s.Base.cameras(ds.Info()) {
		for _, e := range list {
			if ds.Len(e) > 0 && ds.Frames(ctx, key, []robocache.Row{{Episode: e}}, refs) == nil {
				seen[refs[0].Path] = true
			}
		}
	}
	j.files = len(seen)
	return j, nil
}

func (j *builder) close() {
	j.lib.Close()
	if j.st != nil {
		store.Close(j.st)
	}
}

// check compares the frames of a run.
func (j *builder) check(ctx context.Context, p *point, facts runFacts) (checked, error) {
	if p.work.CheckFrames == 0 {
		return checked{}, nil
	}
	if j.s.folder() == "" {
		return checked{Note: "frames of a remote set are not compared"}, nil
	}
	var all []delivered
	for _, f := range facts.frames {
		d, err := readHandedOver(f)
		if err != nil {
			return checked{}, err
		}
		all = append(all, d...)
	}
	if len(all) == 0 {
		return checked{}, nil
	}
	return checkFrames(ctx, j.ref, all, false)
}

// rowBytes are the bytes of a sample's rows.
func (w *Workload) rowBytes(info *robocache.Info) float64 {
	var n float64
	for i := range info.Features {
		f := &info.Features[i]
		each := float64(f.RowBytes())
		if w.Window > 0 && (f.Key == "observation.state" || f.Key == "action") {
			each *= float64(w.Window)
		}
		n += each
	}
	return n
}

// aloneBytes is the mean over samples of the bytes that a lone sample wants: packets from the governing key frames to the wanted
// ones, and its rows. Samples of one batch share some of it, so a loader may read less.
func (j *builder) aloneBytes(ctx context.Context, w *Workload) (alone *float64, rows float64, err error) {
	rowBytes := w.rowBytes(j.ref.ds.Info())
	key := fmt.Sprint(w.Video, w.Window)
	if v, ok := j.needed[key]; ok {
		return v, rowBytes, nil
	}
	list, err := w.episodes(j.ref.ds.Info())
	if err != nil {
		return nil, 0, err
	}
	info, rng, total := j.ref.ds.Info(), rand.New(rand.NewPCG(1, 2)), 0.0
	probes := 200
	if j.s.folder() == "" {
		probes = 40
	}
	cameras, count := w.cameras(info), 0
	for range probes {
		e := list[rng.IntN(len(list))]
		if j.ref.ds.Len(e) == 0 {
			continue
		}
		count++
		row := rng.IntN(j.ref.ds.Len(e))
		var rows []robocache.Row
		for k := range max(w.Window, 1) {
			rows = append(rows, robocache.Row{Episode: e, Index: min(row+k, j.ref.ds.Len(e)-1)})
		}
		refs := make([]robocache.FrameRef, len(rows))
		for _, c := range cameras {
			if err := j.ref.ds.Frames(ctx, c, rows, refs); err != nil {
				return nil, 0, err
			}
			n, err := j.packetBytes(ctx, refs)
			if err != nil {
				return nil, 0, err
			}
			total += float64(n)
		}
	}
	if count > 0 {
		mean := total/float64(count) + rowBytes
		alone = &mean
	}
	j.needed[key] = alone
	return alone, rowBytes, nil
}

func (j *builder) packetBytes(ctx context.Context, refs []robocache.FrameRef) (int64, error) {
	byFile := map[string][]int{}
	for _, r := range refs {
		if r.Path != "" {
			byFile[r.Path] = append(byFile[r.Path], r.Ordinal)
		}
	}
	var n int64
	for path, ordinals := range byFile {
		f, err := j.lib.Acquire(ctx, path)
		if err != nil {
			return 0, err
		}
		slices.Sort(ordinals)
		for _, g := range video.Plan(f.Index, slices.Compact(ordinals)) {
			for d := g.Start; d <= g.End; d++ {
				n += int64(f.Index.Sample(d).Size)
			}
		}
		f.Release()
	}
	return n, nil
}

// result makes the rows of a point.
func (j *builder) result(ctx context.Context, p *point) PointResult {
	if len(p.runs) == 0 {
		return PointResult{Merged: j.empty(p)}
	}
	m := p.median()
	outs, facts := p.runs[m], p.local[m]
	var r PointResult
	r.Outcomes = outs
	alone, rows, err := j.aloneBytes(ctx, &p.work)
	if err != nil {
		p.notes = append(p.notes, "bytes_needed_per_sample: "+err.Error())
	}
	for i := range outs {
		k := keysOf(p, i, &outs[i], facts)
		j.fill(p, k, facts)
		needs(k, alone, rows)
		r.Keys = append(r.Keys, k)
	}
	r.Merged = r.Keys[0]
	if len(outs) > 1 {
		r.Merged = mergedKeys(p, r.Keys, outs, facts)
		j.fill(p, r.Merged, facts)
		r.Merged.BytesAlonePerSample = alone // of the ranks, the rows are counted already
		j.cover(p, r.Merged, facts)
	}
	r.Merged.Spread = p.spread()
	if p.check.done {
		r.Merged.FramesChecked, r.Merged.WrongFrames = &p.check.Checked, &p.check.Wrong
		for _, w := range p.check.Where {
			r.Merged.Errors = append(r.Merged.Errors, "wrong frame: "+w)
		}
	}
	if p.check.Note != "" {
		r.Merged.Notes = append(r.Merged.Notes, p.check.Note)
	}
	r.Merged.ResumeExact = p.resume
	r.Merged.Notes = append(r.Merged.Notes, p.notes...)
	r.Merged.Failed = verdict(r.Merged)
	if p.failed != "" {
		r.Merged.Failed = p.failed // of a later repeat
	}
	r.Explain = Explain(r.Merged, &p.work, outs)
	return r
}

// needs sets what a sample needed: the packets that were decoded for it and its rows; where the runner counts no packets, those of a lone
// sample stand in for them.
func needs(k *Keys, alone *float64, rows float64) {
	k.BytesAlonePerSample = alone
	switch {
	case k.BytesNeededPerSample != nil:
		v := *k.BytesNeededPerSample + rows
		k.BytesNeededPerSample = &v
	case k.NumCameras == 0:
		k.BytesNeededPerSample = &rows
	default:
		k.BytesNeededPerSample = alone
	}
}

// verdict says why a run does not count: a wrong frame, or a sample lost or doubled in a finished epoch.
func verdict(k *Keys) string {
	var why []string
	if k.WrongFrames != nil && *k.WrongFrames > 0 {
		why = append(why, fmt.Sprintf("%d of %d checked frames are wrong", *k.WrongFrames, *k.FramesChecked))
	}
	if k.SamplesLost > 0 {
		why = append(why, fmt.Sprintf("%d samples lost in finished epochs", k.SamplesLost))
	}
	if k.SamplesDoubled > 0 {
		why = append(why, fmt.Sprintf("%d samples doubled in finished epochs", k.SamplesDoubled))
	}
	if k.ResumeExact != nil && !*k.ResumeExact {
		why = append(why, "a killed and resumed run is not the unbroken one")
	}
	return strings.Join(why, "; ")
}

// fill adds what does not depend on a rank.
func (j *builder) fill(p *point, k *Keys, facts runFacts) {
	k.Machine, k.Repeats, k.CacheState = j.machine, len(p.runs), facts.state
	if facts.known {
		k.ResidentBefore = &facts.resident
	}
	if p.scenario.Store != "" {
		k.DeviceReadBytes += facts.deviceOwn // the harness serves the files
	}
	if k.CacheState == "cold" && k.DeviceReadBytes == 0 {
		k.CacheState = "unproven" // evicted, and yet no device was read
	}
	if k.CacheState == "cold" && k.EpochsFinished > 0 {
		k.Notes = append(k.Notes, fmt.Sprintf("the set was gone through %d times: only the first time found a cold page cache (a larger set, or a shorter --duration)", k.EpochsFinished))
	}
	k.NeighbourIdeal = IdealNeighbours(j.ref.lengths)
	if k.Loader == "streaming" {
		k.NumShards = &j.files
		root := j.s.URI
		k.DataFilesRoot = &root
		k.Store = "http on the loopback, " + p.scenario.Store + ": " + j.s.Links[p.scenario.Store].String()
		if j.s.folder() == "" {
			k.Store = "the set's own server"
		}
	} else {
		k.Store = "local files"
		if k.LoadedEpisodes == nil {
			n := len(j.ref.lengths)
			k.LoadedEpisodes = &n
		}
	}
}

// cover joins the ranks' epochs.
func (j *builder) cover(p *point, k *Keys, facts runFacts) {
	var ranks [][][]int64
	for _, f := range facts.orders {
		var e epochs
		if err := replay(f, &e); err != nil {
			k.Notes = append(k.Notes, "coverage: "+err.Error())
			return
		}
		ranks = append(ranks, e.done)
	}
	c := coverageOf(ranks, j.ref.samples, p.work.BatchSize)
	k.EpochsFinished = c.Epochs
	if c.Epochs == 0 {
		return
	}
	k.CoverageMin, k.CoverageMax, k.OrderSHA256, k.OrderSamples = &c.Low, &c.High, c.Order, c.OrderSamples
	n := int64(c.Epochs)
	k.SamplesLost, k.SamplesDoubled = c.Lost, c.Doubled
	if k.SkippedEpisodes == 0 {
		k.SamplesLost -= n * dropsOfEpoch(j.ref.samples, p.work.BatchSize, p.work.World, p.work.DropLast)
		k.SamplesDoubled -= n * wrapsOfEpoch(j.ref.samples, p.work.BatchSize, p.work.World, p.work.DropLast)
		return
	}
	k.SamplesLost, k.SamplesDoubled = 0, 0
	k.Notes = append(k.Notes, "episodes were skipped: what they lack, and what came in their place, is not counted as lost or doubled")
}

// empty is the row of a point that gave nothing.
func (j *builder) empty(p *point) *Keys {
	k := &Keys{Scenario: p.scenario.Name, WorldSize: max(p.work.World, 1), Loader: p.scenario.Loader, BatchSize: p.batch, NumWorkers: p.work.Workers, Runner: p.runner,
		Shuffle: p.work.Shuffle, Cache: p.work.Cache, Machine: j.machine, Failed: p.failed, Errors: []string{p.failed}, CacheState: "unproven"}
	return k
}
