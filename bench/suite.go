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

// Suite is a run of scenarios on one set.
type Suite struct {
	// a local folder, or where it is http already: the scenarios that stream take it as it is
	URI        string
	Scenarios  []Scenario
	Runners    []string
	BatchSizes []int
	Repeats    int
	Base       Workload // Workers 0 and Shuffle "" are the scenario's
	CacheState string   // cold | warm
	Links      map[string]Link
	Timeout    time.Duration // of one run

	Partitions, Partition int // the set is cut into parts of about equal frames; 0: not at all
	MaxEpisodes           int
	// one rank a process, where the scenario has several; nil: all ranks are ours
	Node    *Node
	Resume  bool // kill and resume once a runner and scenario
	Program string
	Tools   runners.Tools
	Log     func(format string, a ...any)

	ref     *reference
	machine report.Machine
	files   int     // of video, that the episodes begin in
	rows    float64 // bytes of a sample's rows
}

// point is one measured combination: the runs are of all ranks.
type point struct {
	Result
	scenario Scenario
	batch    int
	runner   string
	work     Workload
	resume   *bool
	notes    []string
}

// PointResult is the rows of one point: a rank each, and the merged one where there are several.
type PointResult struct {
	Keys    []*Keys  `json:"ranks"`
	Merged  *Keys    `json:"merged"`
	Explain []string `json:"explain,omitempty"`
}

// RunSuite measures every combination of scenario, batch size and runner. Runners take turns within
// a scenario; each run is a fresh process a rank. A run that gave a wrong frame or lost a sample is
// reported as failed, with its figures.
func RunSuite(ctx context.Context, s *Suite) (results []PointResult, err error) {
	local := s.Base
	local.URI = s.URI
	ds, err := local.open(ctx)
	if err != nil {
		return results, err
	}
	defer ds.Close()
	if err := s.chooseEpisodes(ds); err != nil {
		return results, err
	}
	if err := s.know(ctx, ds); err != nil {
		return results, err
	}
	for _, sc := range s.Scenarios {
		for _, batch := range s.BatchSizes {
			points, turns := make([]*point, len(s.Runners)), make([]*Result, len(s.Runners))
			for i, a := range s.Runners {
				points[i] = &point{
					Result: Result{
						Runner: Runner{Name: fmt.Sprintf("%s bs%d %s", sc.Name, batch, a)},
					},
					scenario: sc,
					batch:    batch,
					runner:   a,
					work:     sc.workload(s.Base, batch),
				}
				turns[i] = &points[i].Result
			}
			if err := measure(ctx, turns, s.Repeats, s.Log, func(i, rep int) (Outcome, error) {
				return s.run(ctx, points[i], rep)
			}); err != nil {
				return results, err
			}
			for _, p := range points {
				if s.Resume && p.Failed == "" {
					same, err := s.resumeExact(ctx, p)
					if err != nil {
						p.notes = append(p.notes, "resume_exact: "+err.Error())
					}
					p.resume = same
				}
				result, err := s.result(p)
				if err != nil {
					return results, err
				}
				results = append(results, result)
			}
		}
	}
	return results, nil
}

// know learns of the set what results are held against: its samples, the files of its video, and
// the bytes of its rows.
func (s *Suite) know(ctx context.Context, ds robocache.Dataset) (err error) {
	s.machine, s.rows = report.ThisMachine(s.Program), s.Base.rowBytes(ds.Info())
	if s.ref, err = newReference(ds, folder(s.URI), &s.Base); err != nil {
		return err
	}
	list, err := s.Base.episodes(ds.Info())
	seen, one := map[string]bool{}, make([]robocache.FrameRef, 1)
	for _, key := range s.Base.cameras(ds.Info()) {
		for _, e := range list {
			if ds.Len(e) > 0 && ds.Frames(ctx, key, []robocache.Row{{Episode: e}}, one) == nil {
				seen[one[0].Path] = true
			}
		}
	}
	s.files = len(seen)
	return err
}

// chooseEpisodes turns partition and cap into a list of episodes.
func (s *Suite) chooseEpisodes(ds robocache.Dataset) error {
	misuse := func(what, want string, got int) error {
		return robocache.Misuse("", nil, "%s", what).Expected(want, fmt.Sprint(got))
	}
	list, err := s.Base.episodes(ds.Info())
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

// serve gives a rank its server, where the scenario wants one; nil: the set's own place is taken.
func (s *Suite) serve(p *point, w *Workload) (*loopback.Server, error) {
	if w.URI = s.URI; p.scenario.Store == "" || s.ref.root == "" {
		return nil, nil
	}
	srv, err := s.Links[p.scenario.Store].serve(s.ref.root)
	if err != nil {
		return nil, err
	}
	w.URI = srv.URL
	return srv, nil
}

// run runs one point once: its servers, its page cache, its ranks, and what they left: order and
// frames, hundreds of MB.
func (s *Suite) run(ctx context.Context, p *point, rep int) (o Outcome, err error) {
	own, world, dir := -1, max(p.work.World, 1), ""
	if s.Node != nil && world > 1 {
		own, world = s.Node.Rank, s.Node.World
		p.work.World = world
		if dir, err = s.Node.turn(p); err != nil {
			return o, err
		}
	} else {
		if dir, err = os.MkdirTemp("", "robocache-bench-run-"); err != nil {
			return o, err
		}
		defer os.RemoveAll(dir)
	}
	if s.ref.root == "" && p.scenario.Store == "" {
		return o, robocache.Misuse(
			"load",
			robocache.Where{"dataset": s.URI},
			"%s wants a local copy",
			p.scenario.Name,
		).
			WithHint("give a folder: the streaming scenarios serve it themselves")
	}
	state := "unproven"
	if s.ref.root != "" {
		if state, err = preparePages(s.ref.root, s.CacheState); err != nil {
			return o, err
		}
	}
	var field, all []Runner
	for r := range world {
		w := p.work
		w.Rank, w.Barrier, w.FramesOut, w.OrderOut = r, dir,
			filepath.Join(dir, fmt.Sprintf("frames%d", r)),
			filepath.Join(dir, fmt.Sprintf("order%d", r))
		if rep > 0 {
			w.CheckFrames = 0
		}
		var srv *loopback.Server
		if own < 0 || r == own {
			if srv, err = s.serve(p, &w); err != nil {
				return o, err
			}
			if srv != nil {
				defer srv.Close()
			}
		}
		picked, err := pick(tables().Loaders, []string{p.runner}, w, &s.Tools)
		if err != nil {
			return o, err
		}
		one := picked[0]
		one.ref, one.seconds, one.srv = s.ref, true, srv
		if all = append(all, one); own < 0 || r == own {
			field = append(field, one)
		}
	}
	device, outs := ownDeviceReads(), make([]Outcome, len(field))
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
	err = g.Wait()
	device = ownDeviceReads() - device
	if own >= 0 && ctx.Err() == nil {
		outs, err = s.Node.exchange(ctx, dir, outs[0], err)
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
		if o, err = together(outs, all, s.ref.samples); err != nil {
			return o, err
		}
	}
	if o.CacheState = state; p.scenario.Store != "" {
		o.DeviceReadBytes += device // the harness serves the files
	}
	return o, nil
}

// result makes the rows of a point: those of the median run. The frames of the first were compared.
func (s *Suite) result(p *point) (r PointResult, err error) {
	if len(p.Runs) == 0 {
		return PointResult{Merged: &Keys{
			Scenario:   p.scenario.Name,
			WorldSize:  max(p.work.World, 1),
			Loader:     p.scenario.Loader,
			BatchSize:  p.batch,
			NumWorkers: p.work.Workers,
			Runner:     p.runner,
			Shuffle:    p.work.Shuffle,
			Cache:      p.work.Cache,
			Machine:    s.machine,
			Failed:     p.Failed,
			Errors:     []string{p.Failed},
			CacheState: "unproven",
		}}, nil
	}
	o := p.median()
	if r.Merged, err = s.keys(p, 0, o); err != nil {
		return r, err
	}
	if r.Keys = []*Keys{r.Merged}; o.Ranks != nil {
		r.Keys = nil
		for i := range o.Ranks {
			o.Ranks[i].CacheState = o.CacheState
			keys, err := s.keys(p, i, &o.Ranks[i])
			if err != nil {
				return r, err
			}
			r.Keys = append(r.Keys, keys)
		}
		r.Merged.ofRanks(r.Keys, o)
	}
	k := r.Merged
	k.Spread, k.ResumeExact = p.spreads(), p.resume
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
	k.Failed = cmp.Or(p.Failed, k.wrong()) // failed: of a later repeat
	r.Explain = Explain(k, &p.work, o.each())
	return r, nil
}

// spread is what the repeats gave.
func (p *point) spreads() map[string]report.Spread {
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

// wrong says why a run does not count: a wrong frame, or a sample lost or doubled in a finished
// epoch.
func (k *Keys) wrong() string {
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
