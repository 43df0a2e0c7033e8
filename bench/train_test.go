package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/gpu"
	"github.com/goatnote-inc/robocache/bench/internal/realdata"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
)

// training returns a tiny run on a real table, with scripts that the test may change.
func training(t *testing.T) *Train {
	tools := runners.Tools{
		Python:     realdata.Python(t, "torch", "pyarrow"),
		PythonPath: filepath.Join(realdata.Root(t), "python"),
	}
	if _, err := os.Stat(filepath.Join(tools.PythonPath, "robocache", "_lib",
		"librobocache.so")); err != nil {
		t.Skipf("make lib: %v", err)
	}
	done, err := tools.Unpack()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return &Train{
		Base: Workload{
			URI:       realdata.Path(t, "g1_v30_exact"),
			BatchSize: 4,
			Warmup:    3,
			Seed:      42,
			Shuffle:   "global",
			Workers:   1,
		},
		Mode:    "compare",
		Runners: []string{"torch", "robocache"},
		Repeats: 1,
		Job: TrainJob{
			Model:     "diffusion-lowdim",
			Device:    "cpu",
			Precision: "fp32",
			Loop:      "async",
			Timing:    "on",
			Steps:     9,
			GPUs:      1,
			Tiny:      true,
		},
		Timeout:    5 * time.Minute,
		Tools:      tools,
		Log:        t.Logf,
		workFolder: t.TempDir(),
	}
}

// A wrong batch in one runner fails the run. The message names the runner and the batch.
func TestTrainFindsAWrongBatch(t *testing.T) {
	tr := training(t)
	name := filepath.Join(tr.Tools.Dir, "robocache_bench", "train_data.py")
	code, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	planted := string(code) + `

def planted(batches):
    for n, b in enumerate(batches):
        if n == 1:
            b["state"][2] += 1e-3
        yield b

right = robocache_batches
def robocache_batches(*a):
    batches, loader = right(*a)
    return planted(batches), loader
`
	if err := os.WriteFile(name, []byte(planted), 0o600); err != nil {
		t.Fatal(err)
	}
	// TestBenchTrain checks that the batches of the other runners are right.
	p, err := tr.newTrainPoint(t.Context(), "robocache", "", 1, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	o, err := runOnce(t.Context(), p.Runner, tr.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	idle := trainPoint{
		Runner:    Runner{Name: "headspace", Job: p.Job},
		baseName:  "headspace",
		worldSize: 1,
		result:    Result{Runs: []Outcome{trained(nil, "", nil)}},
	}
	p.result.Runs = []Outcome{o}
	r := &TrainReport{}
	r.addRows(tr, []trainPoint{idle, p, idle})
	if k := r.Rows[1]; k.Runner != "robocache" || !k.Differs || k.Wrong != 1 ||
		!strings.Contains(k.Failed,
			"1 of 3 compared batches are wrong: [batch 1: state differ by 0.001") {
		t.Errorf("%s: %s, %d wrong", k.Runner, k.Failed, k.Wrong)
	}
	if wrong := r.Document().Wrong; !strings.HasPrefix(wrong, "robocache: ") {
		t.Errorf("%q", wrong)
	}
}

// Two ranks over gloo deliver each sample once, in the order of the plan, and print the lines of
// the protocol once.
func TestTrainOnTwoRanks(t *testing.T) {
	tr := training(t)
	tr.Job.GPUs = 2
	p, err := tr.newTrainPoint(t.Context(), "robocache", "", 2, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	o, err := runOnce(t.Context(), p.Runner, tr.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	x := o.Train
	if p.Name != "robocache ×2" || o.Samples != 9*4*2 || len(x.RankSamples) != 2 ||
		x.Doubled != 0 ||
		x.OrderWrong != 0 ||
		x.Checked != 3 ||
		x.Wrong != 0 ||
		o.OrderSHA256 == "" ||
		o.CPUSeconds <= 0 {
		t.Errorf("%+v %+v", o, x)
	}
	endsRanks(t, tr)
}

// endsRanks checks that ranks end with their torchrun although each has its own session. Otherwise
// they would train during the next run.
func endsRanks(t *testing.T, tr *Train) {
	name, pids := filepath.Join(tr.Tools.Dir, "robocache_bench", "train_data.py"), t.TempDir()
	code, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	waits := "\n\ndef robocache_batches(*a):\n    import time\n\n    open(os.path.join(" +
		strconv.Quote(pids) + ", str(os.getpid())), 'w').close()\n    time.sleep(120)\n"
	if err := os.WriteFile(name, append(code, waits...), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := tr.newTrainPoint(t.Context(), "robocache", "", 2, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	came := make(chan []os.DirEntry, 1)
	go func() {
		defer cancel()
		for end := time.Now().Add(
			time.Minute,
		); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if list, _ := os.ReadDir(pids); len(list) == 2 {
				came <- list
				return
			}
		}
		came <- nil
	}()
	if _, err = runOnce(ctx, p.Runner, tr.Timeout); err == nil {
		t.Error("no error")
	}
	list := <-came
	if len(list) != 2 {
		t.Fatal("the ranks did not come: ", err)
	}
	for _, f := range list {
		pid, _ := strconv.Atoi(f.Name())
		gone := func() bool {
			state := procFile(pid, "stat")
			return state == "" || strings.Contains(state, ") Z ")
		}
		for end := time.Now().Add(5 * time.Second); !gone() && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
		}
		if !gone() {
			t.Errorf("rank %d goes on", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func trained(losses []float64, order string, change func(*TrainRun)) Outcome {
	x := &TrainRun{
		TrainFigures: TrainFigures{Weights: "w", Losses: losses, Checked: 3},
		Sums:         [][3]float64{{1, 2, 3}, {4, 5, 6}},
		WindowSteps:  2,
	}
	if change != nil {
		change(x)
	}
	return Outcome{
		Samples:      10,
		Seconds:      1,
		Train:        x,
		OrderFigures: OrderFigures{OrderSHA256: order},
	}
}

func TestCheckTraining(t *testing.T) {
	curve, near, far := []float64{1, 2, 3}, []float64{1, 2.01, 3}, []float64{1, 2.05, 3}
	for _, c := range []struct {
		name string
		run  Outcome
		why  string
	}{
		{"the same", trained(curve, "a", nil), ""},
		{"within the noise", trained(near, "a", nil), ""},
		{
			"beyond it",
			trained(far, "a", nil),
			"the losses differ from those of torch by 0.025, allowed 0.015",
		},
		{"not a number", trained([]float64{1, math.NaN(), 3}, "a", nil), "the losses differ"},
		{"another order: not compared", trained(far, "b", nil), ""},
		{
			"other weights",
			trained(curve, "a", func(x *TrainRun) { x.Weights = "v" }),
			"other weights",
		},
		{
			"a batch of other numbers",
			trained(curve, "a", func(x *TrainRun) {
				x.Sums = [][3]float64{{1, 2, 3}, {4, 5.001, 6}}
			}),
			"batch 1 has other numbers",
		},
		{
			"a batch of none",
			trained(curve, "a", func(x *TrainRun) {
				x.Sums = [][3]float64{{1, 2, math.NaN()}, {4, 5, 6}}
			}),
			"batch 0 has other numbers",
		},
		{
			"not the plan's order",
			trained(curve, "a", func(x *TrainRun) { x.OrderWrong = 4 }),
			"4 samples are not those of the order",
		},
		{
			"a sample twice",
			trained(curve, "a", func(x *TrainRun) { x.Doubled = 1 }),
			"twice in an epoch",
		},
		{
			"a compared batch",
			trained(curve, "a", func(x *TrainRun) {
				x.Wrong, x.WrongWhere = 1, []string{"batch 10: frames"}
			}),
			"1 of 3 compared batches",
		},
	} {
		torch := &trainPoint{
			Runner:   Runner{Name: "torch"},
			baseName: "torch",
			result: Result{
				Runs: []Outcome{trained(curve, "a", nil), trained([]float64{1, 2.01, 3}, "a", nil)},
			},
		}
		own := &trainPoint{
			Runner:   Runner{Name: "own", Job: &Workload{}},
			baseName: "robocache",
			result:   Result{Runs: []Outcome{c.run}},
		}
		found := checkTraining([]*trainPoint{torch, own})
		if got := strings.Join(found[own].problems, "; "); c.why == "" && got != "" ||
			!strings.Contains(got, c.why) || len(found[torch].problems) > 0 {
			t.Errorf("%s: %q, torch %v", c.name, got, found[torch].problems)
		}
	}
	// Losses of a repeated batch approach 0, where they differ a lot. The tolerance of a runner
	// does not depend on its own repeats.
	idle := &trainPoint{
		baseName: "headspace",
		result: Result{
			Runs: []Outcome{
				trained([]float64{1, 0.1, 1e-4}, "", nil),
				trained([]float64{1, 0.1, 2e-4}, "", nil),
			},
		},
	}
	torch := &trainPoint{
		Runner:   Runner{Name: "torch"},
		baseName: "torch",
		result:   Result{Runs: []Outcome{trained(curve, "a", nil)}},
	}
	for _, c := range []struct {
		second []float64
		wrong  bool
	}{{[]float64{1, 2.08, 3}, false}, {[]float64{1, 2.2, 3}, true}} {
		own := &trainPoint{
			Runner:   Runner{Name: "own", Job: &Workload{}},
			baseName: "robocache",
			result: Result{
				Runs: []Outcome{trained(curve, "a", nil), trained(c.second, "a", nil)},
			},
		}
		if why := checkTraining([]*trainPoint{
			idle,
			torch,
			own,
			idle,
		})[own].problems; (len(why) > 0) != c.wrong {
			t.Errorf("%v: %v", c.second, why)
		}
	}
	// Frames resized by the loader are compared only with each other. A second number of workers
	// counts as a repeat.
	resized := func(base string, curve []float64) *trainPoint {
		return &trainPoint{
			Runner:   Runner{Name: base, Job: &Workload{ImageSize: "224x224"}},
			baseName: base,
			result:   Result{Runs: []Outcome{trained(curve, "a", nil)}},
		}
	}
	points := []*trainPoint{
		resized("torch", curve),
		resized("torch", near),
		resized("robocache-ram", far),
		resized("robocache-disk", curve),
	}
	found := checkTraining(points)
	for i, want := range []bool{false, false, false, true} {
		if got := len(found[points[i]].problems) > 0; got != want {
			t.Errorf("resized, %s: %v", points[i].Name, found[points[i]].problems)
		}
	}
}

// A failed run of RoboCache and a lost sample of any runner are wrong. A peer that cannot run is
// not wrong.
func TestReportWrong(t *testing.T) {
	r := &Report{Results: []Result{
		{Runner: Runner{Name: "robocache", Job: &Workload{}}, Failed: "action of a batch differs"},
		{Runner: Runner{Name: "lerobot"}, Failed: "it is not installed"},
		{Runner: Runner{Name: "torch"}, Runs: []Outcome{{
			OrderFigures: OrderFigures{
				CoverageMin: 0,
				CoverageMax: 1,
			},
		}}},
		{Runner: Runner{Name: "engine"}, Runs: []Outcome{{
			OrderFigures: OrderFigures{
				CoverageMin: 1,
				CoverageMax: 1,
			},
		}}},
	}}
	if got, want := strings.Join(r.wrongRunners(), "; "),
		"robocache: action of a batch differs; torch: a sample came 0 to 1 times an epoch"; got !=
		want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Complete runs do not run again, but a run with a truncated line does. A full disk ends the
// measurement with a message of one line.
func TestFinished(t *testing.T) {
	path, runs := filepath.Join(t.TempDir(), "out", "rows.jsonl"), 0
	all := func(resume bool) {
		f, err := OpenFinished(path, resume)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for i := range 3 {
			if v, err := Once(
				f,
				[]any{"k", i},
				func() (int, error) { runs++; return 10 * i, nil },
			); err != nil ||
				v != 10*i {
				t.Errorf("%d: %d %v", i, v, err)
			}
		}
		if _, err := Once(
			f,
			"fails",
			func() (int, error) { runs++; return 0, errors.New("x") },
		); err == nil {
			t.Error("no error")
		}
	}
	for _, c := range []struct {
		resume bool
		cut    int
		want   int
	}{{false, 0, 4}, {true, 0, 1}, {true, 5, 2}, {false, 0, 4}} {
		if b, err := os.ReadFile(path); err == nil {
			if err := os.WriteFile(path, b[:len(b)-c.cut], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		runs = 0
		if all(c.resume); runs != c.want {
			t.Errorf("%+v: %d runs", c, runs)
		}
	}
	if f, err := OpenFinished("/dev/full", false); err == nil {
		_, err := Once(f, "k", func() (int, error) { return 1, nil })
		if !errors.Is(err, robocache.ErrResourceLimit) || f.writeError() == nil ||
			!strings.Contains(err.Error(), "no space left") {
			t.Errorf("%v", err)
		}
	}
}

// Runs with known rates give the stalls of a cold page cache, the efficiency of the slowest rank,
// and the reason for a short window. There is one plot each for threads, GPUs, and the counters
// with marks of epochs.
func TestTrainRows(t *testing.T) {
	tr := &Train{Job: TrainJob{GPUs: 2, Device: "cuda"}}
	point := func(base, pages string, world, threads int, rate float64, change func(*Outcome)) trainPoint {
		o := trained([]float64{1, 2}, "", nil)
		if change != nil {
			change(&o)
		}
		o.Samples, o.Seconds = int64(rate), 1
		name := strings.TrimSpace(base + " " + pages)
		if threads > 0 {
			name += "/" + strconv.Itoa(threads)
		}
		if world > 1 {
			name += " ×2"
		}
		job := TrainJob{Threads: threads, Device: "cuda"}
		return trainPoint{
			Runner:     Runner{Name: name, Job: &Workload{BatchSize: 1, Train: &job, Seconds: 10}},
			baseName:   base,
			cacheState: pages,
			worldSize:  world,
			result:     Result{Runs: []Outcome{o}},
		}
	}
	sampled := func(o *Outcome) {
		o.Train.Epochs = []int64{1e9, 3e9}
		for i := range 20 {
			o.Train.GPUSamples = append(
				o.Train.GPUSamples,
				gpu.Sample{UnixNS: int64(i) * 2e8, Values: map[string]float64{"sm_util_pct": 80}},
			)
		}
	}
	r := &TrainReport{}
	r.addRows(tr, []trainPoint{
		point(
			"headspace",
			"",
			1,
			0,
			1000,
			nil,
		),
		point("h2d", "", 1, 0, 800, nil),
		point("robocache", "cold", 1, 1, 200, sampled),
		point("robocache", "warm", 1, 1, 400, nil),
		point("robocache", "warm", 1, 2, 500, nil),
		point("headspace", "", 1, 0, 1000, nil),
		point(
			"headspace",
			"",
			2,
			0,
			2000,
			nil,
		),
		point(
			"robocache",
			"warm",
			2,
			1,
			700,
			func(o *Outcome) { o.Train.RankSamples = []float64{380, 320} },
		),
		point("headspace", "", 2, 0, 2000, nil),
	})
	if k := r.Rows[2]; k.Runner != "robocache cold/1" || *k.FetchStallPct != 50 ||
		math.Abs(*k.PrepStallPct-25) > 1e-9 ||
		r.Rows[3].FetchStallPct != nil {
		t.Errorf("%+v", k)
	}
	if k := r.Rows[6]; k.Runner != "robocache warm/1 ×2" || *k.SlowestRank != 1 ||
		*k.Scaling != 0.8 {
		t.Errorf("%+v", k)
	}
	notes := strings.Join(r.AllNotes(), "\n")
	for _, want := range []string{
		"robocache cold/1: the window took 1.0 s in place of 10: the set is too small",
		"2 epochs began in the window; only the first found a cold page cache",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in\n%s", want, notes)
		}
	}
	figures := map[string]*report.Figure{}
	for _, s := range r.Document().Sections {
		if s.Figure != nil {
			figures[s.Figure.Name] = s.Figure
		}
	}
	if f := figures["threads"]; f == nil || len(f.Curves) != 3 ||
		f.Curves[1].Name != "robocache warm" ||
		len(f.Curves[1].Points) != 2 {
		t.Errorf("%+v", f)
	}
	if f := figures["scaling"]; f == nil || f.Curves[0].Points[1].Y != 2000 ||
		!f.Curves[len(f.Curves)-1].Limit {
		t.Errorf("%+v", f)
	}
	if f := figures["gpu_utilisation"]; f == nil || len(f.Curves) != 1 ||
		len(f.Curves[0].Points) != 20 ||
		len(f.Curves[0].Marks) != 2 ||
		f.Curves[0].Marks[1].X != 3 {
		t.Errorf("%+v", f)
	}
	if err := r.Document().Write(t.TempDir()); err != nil {
		t.Error(err)
	}
}
