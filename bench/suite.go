package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// Suite is a run of scenarios on one set.
type Suite struct {
	URI        string // a local folder, or where it is http already: the scenarios that stream take it as it is
	Scenarios  []Scenario
	Runners    []string
	BatchSizes []int
	Repeats    int
	Base       Workload // Workers 0 and Shuffle "" are the scenario's
	CacheState string   // cold | warm
	Links      map[string]Link
	Timeout    time.Duration // of one run

	Partitions, Partition int // the set is cut by Partition; 0: not at all
	MaxEpisodes           int
	Node                  *Node // one rank a process, where the scenario has several; nil: all ranks are ours
	Resume                bool  // kill and resume once a runner and scenario
	Program               string
	Tools                 runners.Tools
	Log                   func(format string, a ...any)

	ref     *reference
	machine report.Machine
	files   int      // of video, that the episodes begin in
	alone   *float64 // bytes that a lone sample wants
	rows    float64  // of them its rows'
	note    string   // why alone is not known
}

// point is one measured combination.
type point struct {
	scenario Scenario
	batch    int
	runner   string
	work     Workload
	runs     [][]Outcome // repeat, rank
	local    []runFacts  // a repeat each
	failed   string
	check    checked
	resume   *bool
	notes    []string
}

// runFacts is what the harness saw of one run.
type runFacts struct {
	resident  float64
	known     bool
	state     string // of the page cache
	samples   int64  // of an epoch
	cover     *tally // of all ranks
	deviceOwn int64  // device reads of the harness, which serves the files of the streaming scenarios
}

// PointResult is the rows of one point: a rank each, and the merged one where there are several.
type PointResult struct {
	Keys    []*Keys  `json:"ranks"`
	Merged  *Keys    `json:"merged"`
	Explain []string `json:"explain,omitempty"`
}

// RunSuite measures every combination of scenario, batch size and runner. Runners take turns within a scenario; each run is a fresh process
// a rank. A run that gave a wrong frame or lost a sample is reported as failed, with its figures.
func RunSuite(ctx context.Context, s *Suite) (results []PointResult, err error) {
	defer guard.Into(&err)
	local := s.Base
	local.URI = s.URI
	ds := guard.Must(local.open(ctx))
	defer ds.Close()
	s.chooseEpisodes(ctx, ds)
	guard.Check(s.know(ctx, ds))
	for _, sc := range s.Scenarios {
		for _, batch := range s.BatchSizes {
			points := make([]*point, len(s.Runners))
			for i, a := range s.Runners {
				points[i] = &point{scenario: sc, batch: batch, runner: a, work: sc.workload(s.Base, batch)}
			}
			guard.Check(interleave(ctx, len(points), s.Repeats, func(i int) *string { return &points[i].failed }, func(i, rep int) error { return s.turn(ctx, points[i], rep) }))
			for _, p := range points {
				if s.Resume && p.failed == "" {
					if err := guard.Try(func() { p.resume = s.resumeExact(ctx, p) }); err != nil {
						p.notes = append(p.notes, "resume_exact: "+err.Error())
					}
				}
				results = append(results, s.result(p))
			}
		}
	}
	return results, nil
}

// turn runs a point once; the frames of its first run are compared.
func (s *Suite) turn(ctx context.Context, p *point, rep int) error {
	name := fmt.Sprintf("%-22s bs%-4d %-10s", p.scenario.Name, p.batch, p.runner)
	err := guard.Try(func() {
		facts, outs := s.runRanks(ctx, p, rep == 0 && p.work.CheckFrames > 0)
		p.runs, p.local = append(p.runs, outs), append(p.local, facts)
		s.Log("%d/%d %s %10.1f samples/s", rep+1, s.Repeats, name, rate(outs))
	})
	if err != nil {
		s.Log("%s failed: %v", name, err)
	}
	return err
}

func (s *Suite) checkFrames(ctx context.Context, files []string) checked {
	if s.folder() == "" {
		return checked{Note: "frames of a remote set are not compared"}
	}
	var all []delivered
	for _, f := range files {
		all = append(all, guard.Must(readDelivered(f))...)
	}
	if len(all) == 0 {
		return checked{}
	}
	return guard.Must(checkFrames(ctx, s.ref, all, false))
}

// rate is the samples per second of a run: of its common window.
func rate(outs []Outcome) float64 {
	if len(outs) == 1 {
		return outs[0].rate()
	}
	c, err := commonWindow(outs)
	if err != nil {
		return 0
	}
	return float64(c.Samples) / c.Seconds
}

// chooseEpisodes turns partition and cap into a list of episodes.
func (s *Suite) chooseEpisodes(ctx context.Context, ds robocache.Dataset) {
	list := guard.Must(s.Base.episodes(ds.Info()))
	if e := slices.Max(append(list, 0)); e >= ds.Info().Episodes {
		guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Msg: "episodes", Want: fmt.Sprintf("below %d", ds.Info().Episodes), Got: fmt.Sprint(e)})
	}
	if s.Partitions > 1 {
		parts := guard.Must(PartitionDataset(ctx, ds, list, s.Partitions, s.folder()))
		if s.Partition < 0 || s.Partition >= s.Partitions {
			guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Msg: "--partition-index", Want: fmt.Sprintf("0 to %d", s.Partitions-1), Got: fmt.Sprint(s.Partition)})
		}
		s.Log("%s", parts)
		list = parts.Bins[s.Partition]
	}
	list = ChooseEpisodes(list, s.MaxEpisodes, uint64(s.Base.Seed))
	if len(list) < ds.Info().Episodes {
		s.Base.Episodes = FormatEpisodes(list)
	}
}

// runRanks runs one point once: its server, its page cache, its ranks, and what they left: order and frames, hundreds of MB.
func (s *Suite) runRanks(ctx context.Context, p *point, check bool) (facts runFacts, outs []Outcome) {
	facts = runFacts{state: "unproven", samples: s.ref.samples}
	own, world, dir := -1, max(p.work.World, 1), ""
	if s.Node != nil && world > 1 {
		own, world = s.Node.Rank, s.Node.World
		p.work.World = world
		dir = s.Node.turn(p)
	} else {
		dir = guard.Must(os.MkdirTemp("", "robocache-bench-run-"))
		defer os.RemoveAll(dir)
	}
	remote := s.folder() == ""
	if remote && p.scenario.Store == "" {
		guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "bench load", Where: robocache.Where{"dataset": s.URI}, Msg: p.scenario.Name + " wants a local copy", Hint: "give a folder: the streaming scenarios serve it themselves"})
	}
	if !remote {
		s.preparePages(&facts)
	}
	var field []Runner
	var orders, frames []string
	for r := range world {
		w := p.work
		w.URI, w.Rank, w.Barrier = s.URI, r, dir
		w.FramesOut, w.OrderOut = filepath.Join(dir, fmt.Sprintf("frames%d", r)), filepath.Join(dir, fmt.Sprintf("order%d", r))
		frames, orders = append(frames, w.FramesOut), append(orders, w.OrderOut)
		if own >= 0 && r != own {
			continue
		}
		var srv *loopback.Server
		if p.scenario.Store != "" && !remote {
			srv = guard.Must(s.Links[p.scenario.Store].serve(s.folder()))
			defer srv.Close()
			w.URI = srv.URL
		}
		one := pick(loaders, []string{p.runner}, w, &s.Tools)[0]
		one.ref, one.ranks, one.srv = s.ref, true, srv
		field = append(field, one)
	}
	device := ownDeviceReads()
	outs = make([]Outcome, len(field))
	// The ranks run at the same time; the first that fails ends the others.
	g, gctx := errgroup.WithContext(ctx)
	for r := range field {
		g.Go(func() (err error) {
			if outs[r], err = runOnce(gctx, field[r], s.Timeout); err != nil && len(field) > 1 {
				err = fmt.Errorf("rank %d: %w", r, err)
			}
			return err
		})
	}
	err := g.Wait()
	facts.deviceOwn = ownDeviceReads() - device
	if own >= 0 && ctx.Err() == nil {
		outs, err = s.Node.exchange(ctx, dir, outs[0], err), nil
	}
	guard.Check(err)
	if check {
		p.check = s.checkFrames(ctx, frames)
	}
	var ranks [][][]int64
	for _, f := range orders {
		var e epochs
		if world > 1 {
			guard.Check(replay(f, &e))
		}
		ranks = append(ranks, e.done)
	}
	facts.cover = coverageOf(ranks, facts.samples, p.work.BatchSize)
	return facts, outs
}

// median gives the run whose rate is the median of the repeats (the lower one of two).
func (p *point) median() int {
	order := make([]int, len(p.runs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rate(p.runs[a]), rate(p.runs[b])) })
	return order[(len(order)-1)/2]
}

// result makes the rows of a point.
func (s *Suite) result(p *point) (r PointResult) {
	if len(p.runs) == 0 {
		return PointResult{Merged: &Keys{Scenario: p.scenario.Name, WorldSize: max(p.work.World, 1), Loader: p.scenario.Loader, BatchSize: p.batch, NumWorkers: p.work.Workers, Runner: p.runner,
			Shuffle: p.work.Shuffle, Cache: p.work.Cache, Machine: s.machine, Failed: p.failed, Errors: []string{p.failed}, CacheState: "unproven"}}
	}
	m := p.median()
	outs, facts := p.runs[m], p.local[m]
	for i := range outs {
		k := keysOf(p, i, &outs[i], facts)
		s.fill(p, k, facts)
		s.needs(k)
		r.Keys = append(r.Keys, k)
	}
	k := r.Keys[0]
	if len(outs) > 1 {
		k = mergedKeys(r.Keys, outs)
		s.fill(p, k, facts)
		if c := facts.cover; c.finished > 0 {
			k.EpochsFinished, k.CoverageMin, k.CoverageMax, k.OrderSHA256, k.OrderSamples = c.finished, &c.low, &c.high, c.sum(), c.orderSamples
			k.lost(c.missing, c.extra, s.ref.samples, &p.work)
		}
	}
	r.Merged = k
	k.Spread = p.spread()
	if p.check.done {
		k.FramesChecked, k.WrongFrames = &p.check.Checked, &p.check.Wrong
		for _, w := range p.check.Where {
			k.Errors = append(k.Errors, "wrong frame: "+w)
		}
	}
	for _, n := range append([]string{p.check.Note, s.note}, p.notes...) {
		if n != "" {
			k.Notes = append(k.Notes, n)
		}
	}
	k.ResumeExact = p.resume
	k.Failed = cmp.Or(p.failed, k.wrong(), k.Failed) // failed: of a later repeat
	r.Explain = Explain(k, &p.work, outs)
	return r
}

// needs sets what a sample needed: the packets that were decoded for it and its rows; where the runner counts no packets, those of a lone
// sample stand in for them.
func (s *Suite) needs(k *Keys) {
	rows := s.rows
	switch k.BytesAlonePerSample = s.alone; {
	case k.BytesNeededPerSample != nil:
		*k.BytesNeededPerSample += rows
	case k.NumCameras == 0:
		k.BytesNeededPerSample = &rows
	default:
		k.BytesNeededPerSample = s.alone
	}
}

// wrong says why a run does not count: a wrong frame, or a sample lost or doubled in a finished epoch.
func (k *Keys) wrong() string {
	var why []string
	also := func(when bool, format string, a ...any) {
		if when {
			why = append(why, fmt.Sprintf(format, a...))
		}
	}
	if k.WrongFrames != nil {
		also(*k.WrongFrames > 0, "%d of %d checked frames are wrong", *k.WrongFrames, *k.FramesChecked)
	}
	also(k.SamplesLost > 0, "%d samples lost in finished epochs", k.SamplesLost)
	also(k.SamplesDoubled > 0, "%d samples doubled in finished epochs", k.SamplesDoubled)
	also(k.ResumeExact != nil && !*k.ResumeExact, "a killed and resumed run is not the unbroken one")
	return strings.Join(why, "; ")
}

// fill adds what does not depend on a rank.
func (s *Suite) fill(p *point, k *Keys, facts runFacts) {
	k.Machine, k.Repeats, k.CacheState, k.NeighbourIdeal = s.machine, len(p.runs), facts.state, IdealNeighbours(s.ref.lengths)
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
	switch {
	case k.Loader != "streaming":
		if k.Store = "local files"; k.LoadedEpisodes == nil {
			n := len(s.ref.lengths)
			k.LoadedEpisodes = &n
		}
		return
	case s.folder() == "":
		k.Store = "the set's own server"
	default:
		k.Store = "http on the loopback, " + p.scenario.Store + ": " + s.Links[p.scenario.Store].String()
	}
	k.NumShards, k.DataFilesRoot = &s.files, &s.URI
}
