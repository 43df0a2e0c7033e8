package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/store/loopback"
	"github.com/goatnote-inc/robocache/submit"
)

// Suite describes a measurement of scenarios on one set.
type Suite struct {
	// URI is a local folder or an http address. Streaming scenarios read an http address directly.
	URI        string
	Scenarios  []Scenario
	Runners    []string
	BatchSizes []int
	Repeats    int
	Base       Workload // Workers 0 and Shuffle "" select the defaults of the scenario
	CacheState string   // cold | warm
	Links      map[string]Link
	Timeout    time.Duration // per run

	// The set is divided into Partitions parts with about equal numbers of frames. 0 means no
	// division.
	Partitions, Partition int
	MaxEpisodes           int
	// Node is set if each rank is a separate process. If it is nil, this process starts all ranks.
	Node    *Node
	Resume  bool // check kill and resume once per runner and scenario
	Program string
	Tools   runners.Tools
	Log     func(format string, a ...any)

	reference  *reference
	machine    report.Machine
	videoFiles int     // number of video files that contain the episodes
	rowBytes   float64 // bytes of the rows of a sample
}

// measuredPoint is one combination of scenario, batch size and runner. Its runs combine all ranks.
type measuredPoint struct {
	Result
	scenario    Scenario
	batchSize   int
	runnerName  string
	workload    Workload
	resumeExact *bool
	notes       []string
}

// PointResult holds the rows of one point: one per rank, and the combined row if there are several
// ranks.
type PointResult struct {
	Keys    []*Keys  `json:"ranks"`
	Merged  *Keys    `json:"merged"`
	Explain []string `json:"explain,omitempty"`
}

// RunSuite measures every combination of scenario, batch size and runner. Runners are interleaved
// within a scenario, and each run starts one fresh process per rank. A run that delivers a wrong
// frame or loses a sample is reported as failed, together with its figures.
func RunSuite(ctx context.Context, s *Suite) (results []PointResult, err error) {
	local := s.Base
	local.URI = s.URI
	ds, err := local.openDataset(ctx)
	if err != nil {
		return results, err
	}
	defer ds.Close()
	if err := s.chooseEpisodes(ds); err != nil {
		return results, err
	}
	if err := s.describeSet(ctx, ds); err != nil {
		return results, err
	}
	for _, sc := range s.Scenarios {
		for _, batch := range s.BatchSizes {
			points, turns := make([]*measuredPoint, len(s.Runners)), make([]*Result, len(s.Runners))
			for i, a := range s.Runners {
				points[i] = &measuredPoint{
					Result: Result{
						Runner: Runner{Name: fmt.Sprintf("%s bs%d %s", sc.Name, batch, a)},
					},
					scenario:   sc,
					batchSize:  batch,
					runnerName: a,
					workload:   sc.rankWorkload(s.Base, batch),
				}
				turns[i] = &points[i].Result
			}
			if err := runInTurns(ctx, turns, s.Repeats, s.Log, func(i, rep int) (Outcome, error) {
				return s.runPoint(ctx, points[i], rep)
			}); err != nil {
				return results, err
			}
			for _, p := range points {
				if s.Resume && p.Failed == "" {
					same, err := s.resumeExact(ctx, p)
					if err != nil {
						p.notes = append(p.notes, "resume_exact: "+err.Error())
					}
					p.resumeExact = same
				}
				result, err := s.pointResult(p)
				if err != nil {
					return results, err
				}
				results = append(results, result)
			}
		}
	}
	return results, nil
}

// describeSet collects the facts about the set that results are compared with: its samples, its
// video files, and the bytes of its rows.
func (s *Suite) describeSet(ctx context.Context, ds robocache.Dataset) (err error) {
	s.machine, s.rowBytes = report.ThisMachine(s.Program), s.Base.rowBytes(ds.Info())
	if s.reference, err = newReference(ds, localFolder(s.URI), &s.Base); err != nil {
		return err
	}
	list, err := s.Base.episodePositions(ds.Info())
	seen, one := map[string]bool{}, make([]robocache.FrameRef, 1)
	for _, key := range s.Base.selectedCameras(ds.Info()) {
		for _, e := range list {
			if ds.Len(e) > 0 && ds.Frames(ctx, key, []robocache.Row{{Episode: e}}, one) == nil {
				seen[one[0].Path] = true
			}
		}
	}
	s.videoFiles = len(seen)
	return err
}

// chooseEpisodes applies the partition and MaxEpisodes to the list of episodes.
func (s *Suite) chooseEpisodes(ds robocache.Dataset) error {
	misuse := func(what, want string, got int) error {
		return robocache.Misuse("", nil, "%s", what).Expected(want, fmt.Sprint(got))
	}
	list, err := s.Base.episodePositions(ds.Info())
	if err != nil {
		return err
	}
	if s.Partitions > 1 {
		if s.Partition < 0 || s.Partition >= s.Partitions || s.Partitions > len(list) {
			return misuse(
				"--partition-index",
				fmt.Sprintf("0 to %d, of %d episodes", s.Partitions-1, len(list)),
				s.Partition,
			)
		}
		var weights []int64
		for _, e := range list {
			weights = append(weights, int64(ds.Len(e)))
		}
		part := shard.LPT(weights, s.Partitions)[s.Partition]
		for i, k := range part {
			part[i] = list[k]
		}
		list = part
	}
	list = ChooseEpisodes(list, s.MaxEpisodes, uint64(s.Base.Seed))
	if len(list) < ds.Info().Episodes {
		s.Base.Episodes = submit.Ranges(ds.Info().EpisodeIndices(list))
	}
	return nil
}

// startServer starts the server of a rank and sets w.URI to its address. If the scenario needs no
// server, it sets w.URI to the set and returns nil.
func (s *Suite) startServer(p *measuredPoint, w *Workload) (*loopback.Server, error) {
	if w.URI = s.URI; p.scenario.Store == "" || s.reference.localRoot == "" {
		return nil, nil
	}
	srv, err := s.Links[p.scenario.Store].serveFolder(s.reference.localRoot)
	if err != nil {
		return nil, err
	}
	w.URI = srv.URL
	return srv, nil
}

// runPoint runs one point once, with its servers and all of its ranks. It prepares the page cache
// first. Afterwards it reads the order and the frames that the ranks saved, which can be hundreds
// of MB.
func (s *Suite) runPoint(ctx context.Context, p *measuredPoint, rep int) (o Outcome, err error) {
	own, world, dir := -1, max(p.workload.World, 1), ""
	if s.Node != nil && world > 1 {
		own, world = s.Node.Rank, s.Node.World
		p.workload.World = world
		if dir, err = s.Node.runFolder(p); err != nil {
			return o, err
		}
	} else {
		if dir, err = os.MkdirTemp("", "robocache-bench-run-"); err != nil {
			return o, err
		}
		defer os.RemoveAll(dir)
	}
	if s.reference.localRoot == "" && p.scenario.Store == "" {
		return o, robocache.Misuse(
			"load",
			robocache.Where{"dataset": s.URI},
			"%s needs a local copy",
			p.scenario.Name,
		).
			WithHint("give a folder: the streaming scenarios serve it themselves")
	}
	state := "unproven"
	if s.reference.localRoot != "" {
		if state, err = preparePages(s.reference.localRoot, s.CacheState); err != nil {
			return o, err
		}
	}
	var field, all []Runner
	for r := range world {
		w := p.workload
		w.Rank, w.Barrier, w.FramesOut, w.OrderOut = r, dir,
			filepath.Join(dir, fmt.Sprintf("frames%d", r)),
			filepath.Join(dir, fmt.Sprintf("order%d", r))
		if rep > 0 {
			w.CheckFrames = 0
		}
		var srv *loopback.Server
		if own < 0 || r == own {
			if srv, err = s.startServer(p, &w); err != nil {
				return o, err
			}
			if srv != nil {
				defer srv.Close()
			}
		}
		picked, err := pickRunners(caseTables().Loaders, []string{p.runnerName}, w, &s.Tools)
		if err != nil {
			return o, err
		}
		one := picked[0]
		one.reference, one.isTimedWindow, one.server = s.reference, true, srv
		if all = append(all, one); own < 0 || r == own {
			field = append(field, one)
		}
	}
	device, outs := ownDeviceReads(), make([]Outcome, len(field))
	// The ranks run at the same time. The first failure ends the others.
	g, gctx := errgroup.WithContext(ctx)
	for r := range field {
		g.Go(func() (err error) {
			if outs[r], err = runOnce(gctx, field[r], s.Timeout); err != nil && len(field) > 1 {
				err = fmt.Errorf("rank %d: %w", r, err)
			}
			return err
		})
	}
	err = g.Wait()
	device = ownDeviceReads() - device
	if own >= 0 && ctx.Err() == nil {
		outs, err = s.Node.exchangeOutcomes(ctx, dir, outs[0], err)
	}
	if err != nil {
		return o, err
	}
	for r := range outs {
		images, err := readDelivered(all[r].Job.FramesOut)
		if err != nil {
			return o, err
		}
		if err := all[r].checkFrames(ctx, images, &outs[r]); err != nil {
			return o, err
		}
	}
	if o = outs[0]; world > 1 {
		if o, err = combineRanks(outs, all, s.reference.samples); err != nil {
			return o, err
		}
	}
	if o.CacheState = state; p.scenario.Store != "" {
		o.DeviceReadBytes += device // this process serves the files
	}
	return o, nil
}

// pointResult makes the rows of a point from the run with the median rate. Frames were compared in
// the first run only.
func (s *Suite) pointResult(p *measuredPoint) (r PointResult, err error) {
	if len(p.Runs) == 0 {
		return PointResult{Merged: &Keys{
			Scenario:   p.scenario.Name,
			WorldSize:  max(p.workload.World, 1),
			Loader:     p.scenario.Loader,
			BatchSize:  p.batchSize,
			NumWorkers: p.workload.Workers,
			Runner:     p.runnerName,
			Shuffle:    p.workload.Shuffle,
			Cache:      p.workload.Cache,
			Machine:    s.machine,
			Failed:     p.Failed,
			Errors:     []string{p.Failed},
			CacheState: "unproven",
		}}, nil
	}
	o := p.medianRun()
	if r.Merged, err = s.resultRow(p, 0, o); err != nil {
		return r, err
	}
	if r.Keys = []*Keys{r.Merged}; o.Ranks != nil {
		r.Keys = nil
		for i := range o.Ranks {
			o.Ranks[i].CacheState = o.CacheState
			keys, err := s.resultRow(p, i, &o.Ranks[i])
			if err != nil {
				return r, err
			}
			r.Keys = append(r.Keys, keys)
		}
		r.Merged.mergeRanks(r.Keys, o)
	}
	k := r.Merged
	k.Spread, k.ResumeExact = p.spreads(), p.resumeExact
	for i := range p.Runs {
		if x := &p.Runs[i]; x.Compared {
			checked, wrong := int(x.FramesChecked), int(x.WrongFrames)
			k.FramesChecked, k.WrongFrames = &checked, &wrong
			for _, w := range x.WrongWhere {
				k.Errors = append(k.Errors, "wrong frame: "+w)
			}
		}
		if x := &p.Runs[i]; x.Note != "" {
			k.Notes = append(k.Notes, x.Note)
		}
	}
	k.Notes = append(k.Notes, p.notes...)
	k.Failed = cmp.Or(p.Failed, k.failureText()) // p.Failed belongs to a later repeat
	r.Explain = Explain(k, &p.workload, o.perRank())
	return r, nil
}

// repeatSpreads returns the spreads over the repeats.
func (p *measuredPoint) spreads() map[string]report.Spread {
	out := map[string]report.Spread{}
	for name, of := range map[string]func(o *Outcome) float64{
		"samples_per_s":         (*Outcome).rate,
		"cpu_s_per_sample":      func(o *Outcome) float64 { return o.cpuPer1000() / 1000 },
		"first_batch_latency_s": func(o *Outcome) float64 { return o.FirstBatchS },
		"pss_peak_gb":           func(o *Outcome) float64 { return o.PSSPeakMB * (1 << 20) / 1e9 },
	} {
		var x report.Spread
		for i := range p.Runs {
			x.Add(of(&p.Runs[i]))
		}
		out[name] = x
	}
	return out
}

// failureText describes why the run is invalid: a wrong frame, a sample lost or doubled in a
// finished epoch, or a resume that is not exact. It returns "" for a valid run.
func (k *Keys) failureText() string {
	var why []string
	also := func(when bool, format string, a ...any) {
		if when {
			why = append(why, fmt.Sprintf(format, a...))
		}
	}
	if k.WrongFrames != nil {
		also(
			*k.WrongFrames > 0,
			"%d of %d checked frames are wrong",
			*k.WrongFrames,
			*k.FramesChecked,
		)
	}
	also(k.SamplesLost > 0, "%d samples lost in finished epochs", k.SamplesLost)
	also(k.SamplesDoubled > 0, "%d samples doubled in finished epochs", k.SamplesDoubled)
	also(
		k.ResumeExact != nil && !*k.ResumeExact,
		"a killed and resumed run is not the unbroken one",
	)
	return strings.Join(why, "; ")
}
