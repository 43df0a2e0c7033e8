package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"

	"github.com/goatnote-inc/robocache"
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
	orders    []string
	frames    []string
	dir       string
	samples   int64 // of an epoch
	deviceOwn int64 // device reads of the harness, which serves the files of the streaming scenarios
}

// PointResult is the rows of one point: a rank each, and the merged one where there are several.
type PointResult struct {
	Keys     []*Keys   `json:"ranks"`
	Merged   *Keys     `json:"merged"`
	Explain  []string  `json:"explain,omitempty"`
	Outcomes []Outcome `json:"-"` // of the median run
}

// RunSuite measures every combination of scenario, batch size and runner. Runners take turns within a scenario; each run is a fresh process
// a rank. A run that gave a wrong frame or lost a sample is reported as failed, with its figures.
func RunSuite(ctx context.Context, s *Suite) ([]PointResult, error) {
	local := s.Base
	local.URI = s.URI
	ds, err := local.open(ctx)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	if err := s.chooseEpisodes(ctx, ds); err != nil {
		return nil, err
	}
	j, err := newBuilder(ctx, ds, s)
	if err != nil {
		return nil, err
	}
	defer j.close()
	var results []PointResult
	// What ranks hand over, frames and orders, is hundreds of MB a run: it goes when its point is judged.
	var dirs []string
	tidy := func() {
		for _, d := range dirs {
			os.RemoveAll(d)
		}
		dirs = nil
	}
	defer tidy()
	for _, sc := range s.Scenarios {
		for _, batch := range s.BatchSizes {
			points := make([]*point, len(s.Runners))
			for i, a := range s.Runners {
				points[i] = &point{scenario: sc, batch: batch, runner: a, work: sc.workload(s.Base, batch)}
			}
			for rep := range s.Repeats {
				for _, p := range points {
					if p.failed != "" {
						continue
					}
					facts, outs, err := s.runRanks(ctx, p, j.ref)
					facts.samples = j.ref.samples
					if facts.dir != "" {
						dirs = append(dirs, facts.dir)
					}
					if ctx.Err() != nil {
						return results, ctx.Err()
					}
					if err == nil && rep == 0 {
						p.check, err = j.check(ctx, p, facts)
					}
					if err != nil {
						p.failed = err.Error()
						s.Log("%s bs%d %s: failed: %v", sc.Name, batch, p.runner, err)
						continue
					}
					p.runs, p.local = append(p.runs, outs), append(p.local, facts)
					s.Log("%d/%d %-22s bs%-4d %-10s %10.1f samples/s", rep+1, s.Repeats, sc.Name, batch, p.runner, rate(outs))
				}
			}
			for _, p := range points {
				if s.Resume && p.failed == "" {
					if p.resume, err = s.resumeExact(ctx, p); err != nil {
						p.notes = append(p.notes, "resume_exact: "+err.Error())
					}
				}
				results = append(results, j.result(ctx, p))
			}
			tidy()
		}
	}
	return results, nil
}

// rate is the samples per second of a run: of its common window.
func rate(outs []Outcome) float64 {
	if len(outs) == 1 {
		return float64(outs[0].Samples) / outs[0].Seconds
	}
	c, err := commonWindow(outs)
	if err != nil {
		return 0
	}
	return float64(c.Samples) / c.Seconds
}

// chooseEpisodes turns partition and cap into a list of episodes.
func (s *Suite) chooseEpisodes(ctx context.Context, ds robocache.Dataset) error {
	list, err := s.Base.episodes(ds.Info())
	if err != nil {
		return err
	}
	for _, e := range list {
		if e >= ds.Info().Episodes {
			return &robocache.Error{Class: robocache.ErrMisuse, Msg: "episodes", Want: fmt.Sprintf("below %d", ds.Info().Episodes), Got: fmt.Sprint(e)}
		}
	}
	if s.Partitions > 1 {
		parts, err := PartitionDataset(ctx, ds, list, s.Partitions)
		if err != nil {
			return err
		}
		if s.Partition < 0 || s.Partition >= s.Partitions {
			return &robocache.Error{Class: robocache.ErrMisuse, Msg: "--partition-index", Want: fmt.Sprintf("0 to %d", s.Partitions-1), Got: fmt.Sprint(s.Partition)}
		}
		if dir := s.folder(); dir != "" {
			if err := parts.SumBytes(func(f string) (int64, error) {
				st, err := os.Stat(filepath.Join(dir, f))
				if err != nil {
					return 0, robocache.At(err, robocache.Where{"file": f})
				}
				return st.Size(), nil
			}); err != nil {
				return err
			}
		}
		s.Log("%s", parts)
		list = parts.Bins[s.Partition]
	}
	list = ChooseEpisodes(list, s.MaxEpisodes, uint64(s.Base.Seed))
	if len(list) < ds.Info().Episodes {
		s.Base.Episodes = FormatEpisodes(list)
	}
	return nil
}

// folder is the set's local folder; "" where it is remote.
func (s *Suite) folder() string {
	if p, ok := strings.CutPrefix(s.URI, "file://"); ok {
		return p
	}
	if strings.Contains(s.URI, "://") {
		return ""
	}
	return s.URI
}

// runRanks runs one point once: its server, its page cache, its ranks.
func (s *Suite) runRanks(ctx context.Context, p *point, ref *reference) (runFacts, []Outcome, error) {
	var facts runFacts
	world := max(p.work.World, 1)
	own := -1
	var dir string
	var err error
	if s.Node != nil && world > 1 {
		own, world = s.Node.Rank, s.Node.World
		p.work.World = world
		dir, err = s.Node.turn(p)
	} else {
		dir, err = os.MkdirTemp("", "robocache-bench-run-")
		facts.dir = dir // to be removed
	}
	if err != nil {
		return facts, nil, robocache.At(err, nil)
	}
	remote := s.folder() == ""
	if remote && p.scenario.Store == "" {
		return facts, nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "bench load", Where: robocache.Where{"dataset": s.URI}, Msg: p.scenario.Name + " wants a local copy", Hint: "give a folder: the streaming scenarios serve it themselves"}
	}
	facts.state = "unproven"
	if !remote {
		if err := s.preparePages(&facts); err != nil {
			return facts, nil, err
		}
	}
	var runners []Runner
	for r := range world {
		w := p.work
		w.URI, w.Rank = s.URI, r
		w.Barrier = dir
		w.FramesOut = filepath.Join(dir, fmt.Sprintf("frames%d", r))
		facts.frames = append(facts.frames, w.FramesOut)
		w.OrderOut = filepath.Join(dir, fmt.Sprintf("order%d", r))
		facts.orders = append(facts.orders, w.OrderOut)
		if own >= 0 && r != own {
			continue
		}
		work := job{ref: ref, batch: w.BatchSize, order: w.OrderOut, frames: w.FramesOut}
		if p.scenario.Store != "" && !remote {
			srv, err := s.Links[p.scenario.Store].serve(s.folder())
			if err != nil {
				return facts, nil, err
			}
			defer srv.Close()
			work.srv, w.URI = srv, srv.URL
		}
		one, err := LoadRunners([]string{p.runner}, w, s.Tools)
		if err != nil {
			return facts, nil, err
		}
		one[0].job = work
		runners = append(runners, one[0])
	}
	device := ownDeviceReads()
	outs, err := s.together(ctx, runners)
	facts.deviceOwn = ownDeviceReads() - device
	if own >= 0 && ctx.Err() == nil {
		outs, err = s.Node.exchange(ctx, dir, outs[0], err)
	}
	return facts, outs, err
}

// together runs the ranks at the same time; the first that fails ends the others.
func (s *Suite) together(ctx context.Context, runners []Runner) ([]Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		rank int
		o    Outcome
		err  error
	}
	answers := make(chan answer)
	for r := range runners {
		go func() {
			o, err := runOnce(ctx, runners[r], s.Timeout)
			answers <- answer{r, o, err}
		}()
	}
	outs := make([]Outcome, len(runners))
	var first error
	for range runners {
		a := <-answers
		outs[a.rank] = a.o
		if a.err != nil && first == nil {
			first = a.err
			if len(runners) > 1 {
				first = fmt.Errorf("rank %d: %w", a.rank, a.err)
			}
			cancel()
		}
	}
	return outs, first
}

// preparePages brings the page cache into the state that was asked for, and says what was achieved.
func (s *Suite) preparePages(facts *runFacts) error {
	files, bytes, err := filesBelow(s.folder())
	if err != nil {
		return err
	}
	if s.CacheState == "cold" {
		if err := evict(files); err != nil {
			return err
		}
	} else if bytes < report.Kilobytes("MemAvailable")<<10/2 {
		if err := warm(files); err != nil {
			return err
		}
	}
	facts.resident, facts.known = resident(files)
	switch {
	case !facts.known:
	case s.CacheState == "cold" && facts.resident < 0.01:
		facts.state = "cold"
	case s.CacheState != "cold" && facts.resident > 0.99:
		facts.state = "warm"
	}
	return nil
}

// median gives the run whose rate is the median of the repeats (the lower one of two).
func (p *point) median() int {
	order := make([]int, len(p.runs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch ra, rb := rate(p.runs[a]), rate(p.runs[b]); {
		case ra < rb:
			return -1
		case ra > rb:
			return 1
		}
		return a - b
	})
	return order[(len(order)-1)/2]
}
