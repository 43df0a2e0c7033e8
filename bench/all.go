package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// All is a run of `bench all`: the whole suite, each part by this program's own verbs, within a time.
type All struct {
	Out, Work string
	Time      time.Duration
	Parts     []string // nil: all
	Python    string
	GPUs      int
	Self      string // this program
	Revision  string
	Done      *Finished
	Resume    bool // Done has what is over
	Log       func(format string, a ...any)

	end time.Time
	few bool // little time: small sets
}

// part is a part of the suite: its share of the time, why it cannot be run here, and its commands. A command is kept in rows.jsonl when it is over.
type part struct {
	name  string
	share float64
	lacks func(*All) string
	steps func(a *All, left time.Duration) []step
}

// step is a command of this program; least is what it takes, so that less time skips it.
type step struct {
	name  string
	args  []string
	least time.Duration
}

// AllStep is a command that was run, or why it was not.
type AllStep struct {
	Part    string          `json:"part"`
	Step    string          `json:"step"`
	Command string          `json:"command"`
	Seconds float64         `json:"seconds"`
	Skipped string          `json:"skipped,omitempty"`
	Failed  string          `json:"failed,omitempty"`
	Missed  bool            `json:"missed,omitempty"` // a bar of it
	Result  json.RawMessage `json:"result,omitempty"` // what the command printed with --json

	later *step // it was skipped for want of time
}

// unsupported is the exit code of what this machine cannot do, missed that of a bar that was not met.
var _, unsupported = robocache.ClassOf(robocache.ErrUnsupported)

const missed = 3

var errSkipped = errors.New("skipped")

var loadBatches = []int{16, 32, 64, 128, 256}

// allParts are the parts in their order.
var allParts = []part{
	{"machine", 3, none, func(*All, time.Duration) []step { return []step{{"self-test", []string{"self-test"}, 5 * time.Second}} }},
	{"synth", 9, none, func(a *All, _ time.Duration) []step {
		var out []step
		for _, preset := range []string{"heterogeneous", "rtx"} {
			n := map[string]int{"heterogeneous": 5000, "rtx": 1000}[preset]
			if a.few {
				n /= 10
			}
			out = append(out, step{fmt.Sprintf("%s, %d episodes", preset, n), []string{"synth", a.set(preset + ".hdf5"), "--format", "robomimic", "--preset", preset, "--episodes", fmt.Sprint(n)}, 2 * time.Second})
		}
		return out
	}},
	{"load", 20, func(a *All) string { return a.imports("torch", "h5py") }, func(a *All, left time.Duration) []step {
		var out []step
		least, episodes := 40*time.Second, "0-4999"
		if a.few {
			least, episodes = 20*time.Second, "0-499"
		}
		repeats := min(max(int(left/least)/len(loadBatches), 1), 5)
		for _, batch := range loadBatches {
			out = append(out, step{fmt.Sprintf("batch %d", batch), []string{"bench", "load", a.set("heterogeneous.hdf5"), "--rows", "200", "--hz", "50", "--batch-size", fmt.Sprint(batch), "--episodes", episodes,
				"--runners", "robocache,torch", "--workers", fmt.Sprint(min(8, runtime.NumCPU())), "--repeats", fmt.Sprint(repeats)}, least})
		}
		return out
	}},
	{"threads", 4, func(a *All) string { return a.imports("torch", "h5py") }, func(a *All, _ time.Duration) []step {
		var counts []string
		for n := 1; n <= min(runtime.NumCPU(), 16); n *= 2 {
			counts = append(counts, fmt.Sprint(n))
		}
		return []step{{"1 thread to " + counts[len(counts)-1], []string{"bench", "load", a.set("heterogeneous.hdf5"), "--rows", "200", "--hz", "50", "--batch-size", "64", "--runners", "robocache",
			"--threads", strings.Join(counts, ","), "--repeats", "1"}, time.Duration(len(counts)) * 8 * time.Second}}
	}},
	{"decode", 4, func(a *All) string {
		if _, err := exec.LookPath("ffmpeg"); err != nil {
			return "no encoder: the ffmpeg program is not here"
		}
		return ""
	}, func(a *All, _ time.Duration) []step {
		frames := []string{"synth", a.set("frames"), "--cameras", "1", "--size", "640x480", "--gop", "2", "--episodes", "20", "--seconds", "5"}
		if a.few {
			frames[len(frames)-3] = "2"
		}
		random := []string{"robocache"}
		if a.imports("av") == "" {
			random = append(random, "pyav")
		}
		return []step{{"frames", frames, 5 * time.Second},
			{"sequential", []string{"bench", "decode", a.set("frames"), "--runners", "robocache,ffmpeg", "--repeats", "2"}, 5 * time.Second},
			{"random", []string{"bench", "decode", a.set("frames"), "--pattern", "random", "--count", "100", "--runners", strings.Join(random, ","), "--repeats", "2"}, 10 * time.Second}}
	}},
	{"ops", 6, func(a *All) string { return a.imports("numpy") }, func(a *All, left time.Duration) []step {
		args := []string{"bench", "ops", "--quick"}
		if left < 2*time.Minute || a.imports("torch") != "" {
			args = append(args, "--runners", "none", "--rows", "resample-256x100,fuse3-256,voxel-mean4-500k")
		}
		out := []step{{"cpu", args, 10 * time.Second}}
		if a.GPUs > 0 {
			out = append(out, step{"cuda", append(slices.Clone(args), "--device", "cuda"), 10 * time.Second})
		}
		return out
	}},
	{"transformer", 15, needGPU, trains(train{"transformer", []string{"--model", "transformer"}})},
	{"diffusion-lowdim", 10, needGPU, trains(train{"diffusion-lowdim", []string{"--model", "diffusion-lowdim"}})},
	{"resnet18", 25, needGPU, trains(train{"224x224", []string{"--model", "resnet18", "--image-size", "224x224", "--runners", "torch,robocache,robocache-ram"}},
		train{"native", []string{"--model", "resnet18", "--runners", "torch,robocache,robocache-pool"}}, train{"diffusion", []string{"--model", "diffusion", "--runners", "torch,robocache"}})},
	{"scale", 8, func(a *All) string {
		if a.GPUs == 1 {
			return "one GPU is here; the share went to the others"
		}
		return needGPU(a)
	}, func(a *All, left time.Duration) []step {
		return trains(train{"all GPUs", []string{"--model", "resnet18", "--image-size", "224x224", "--runners", "robocache-ram", "--gpus", fmt.Sprint(max(a.GPUs, 2))}})(a, left)
	}},
}

func none(*All) string { return "" }

func needGPU(a *All) string {
	if a.GPUs == 0 {
		return "no CUDA device"
	}
	return a.imports("torch", "h5py")
}

// train is a run of `bench train`, which keeps each of its own runs beside the report.
type train struct {
	name string
	args []string
}

func trains(all ...train) func(*All, time.Duration) []step {
	return func(a *All, left time.Duration) (out []step) {
		for _, t := range all {
			least := 100 * time.Second
			repeats := min(max(int(left/least)/len(all), 1), 3)
			name := strings.ReplaceAll(t.args[1]+" "+t.name, " ", "-")
			out = append(out, step{t.name, slices.Concat([]string{"bench", "train"}, t.args, []string{"--work", a.Work, "--out", filepath.Join(a.Out, "train", name), "--steps", "100", "--repeats", fmt.Sprint(repeats)}), least})
		}
		return out
	}
}

// set is the path of a set of the suite.
func (a *All) set(name string) string {
	if a.few {
		return filepath.Join(a.Work, "all-few", name)
	}
	return filepath.Join(a.Work, "all", name)
}

// imports says which packages the interpreter lacks.
func (a *All) imports(packages ...string) string {
	look := "import importlib.util as u, sys; print(*[p for p in sys.argv[1:] if not u.find_spec(p)])"
	out, err := exec.Command(a.Python, append([]string{"-c", look}, packages...)...).Output() //nolint:gosec // the user's interpreter
	if missing := strings.Fields(string(out)); err != nil {
		return a.Python + " does not run"
	} else if len(missing) > 0 {
		return a.Python + " has no " + strings.Join(missing, " and no ")
	}
	return ""
}

// AllNames lists the parts.
func AllNames() (out []string) {
	for _, p := range allParts {
		out = append(out, p.name)
	}
	return out
}

// Check refuses what cannot be run, before a file is touched.
func (a *All) Check() error {
	for _, n := range a.Parts {
		if !slices.Contains(AllNames(), n) {
			return report.UnknownName("part", n, AllNames())
		}
	}
	if a.Time < 20*time.Second {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "bench all", Msg: "--time", Want: "20s or more", Got: a.Time.String()}
	}
	if a.Out == "" {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "bench all", Msg: "--out", Want: "a folder for rows.jsonl and the results", Got: "none"}
	}
	return nil
}

// Run runs the parts, each within its share of the time that is left.
func (a *All) Run(ctx context.Context) (r *AllReport, err error) {
	defer guard.Into(&err)
	a.end, a.few = time.Now().Add(a.Time), a.Time < 10*time.Minute
	r = &AllReport{Time: a.Time.String(), Machine: report.ThisMachine(a.Revision)}
	var here []part
	var shares float64
	for _, p := range allParts {
		if a.Parts != nil && !slices.Contains(a.Parts, p.name) {
			continue
		}
		if why := p.lacks(a); why != "" {
			for _, s := range p.steps(a, time.Hour) {
				r.Steps = append(r.Steps, AllStep{Part: p.name, Step: s.name, Command: "robocache " + strings.Join(s.args, " "), Skipped: why})
			}
			a.Log("skipped %s: %s", p.name, why)
			continue
		}
		here, shares = append(here, p), shares+p.share
	}
	total, left := shares, func() time.Duration { return time.Until(a.end) - a.Time*3/100 }
	for _, p := range here {
		// What is run follows from --time alone, so that a resumed run has the same commands; how long it may take, from what is left.
		steps := p.steps(a, time.Duration(float64(a.Time)*p.share/total))
		a.part(ctx, p.name, steps, time.Duration(float64(left())*p.share/shares), r)
		shares -= p.share
	}
	// What found no time in its part's share may find it in what others left.
	for i := 0; i < len(r.Steps); i++ {
		if s := r.Steps[i]; s.later != nil && left() > s.later.least {
			r.Steps = slices.Delete(r.Steps, i, i+1)
			i--
			a.part(ctx, s.Part, []step{*s.later}, left(), r)
		}
	}
	slices.SortStableFunc(r.Steps, func(x, y AllStep) int {
		return cmp.Compare(slices.Index(AllNames(), x.Part), slices.Index(AllNames(), y.Part))
	})
	return r, nil
}

// part runs the commands of a part; what one leaves of its time goes to the next.
func (a *All) part(ctx context.Context, name string, steps []step, budget time.Duration, r *AllReport) {
	end := time.Now().Add(budget)
	for i, s := range steps {
		key := []any{"all", name, s.args, a.Revision, r.Machine.CPU, r.Machine.Cores}
		if s.args[0] == "synth" && !exists(s.args[1]) {
			a.Done.forget(key) // the row was kept, and the set was not
		}
		out, err := Once(a.Done, key, func() (AllStep, error) {
			out, left := AllStep{Part: name, Step: s.name, Command: "robocache " + strings.Join(s.args, " ")}, time.Until(end)
			if left < s.least {
				out.Skipped, out.later = fmt.Sprintf("needs %.0f s, %.0f left", s.least.Seconds(), max(left.Seconds(), 0)), &s
				return out, errSkipped
			}
			return a.run(ctx, out, s, min(max(2*left/time.Duration(len(steps)-i), 3*s.least), time.Until(a.end)))
		})
		guard.Check(cmp.Or(ctx.Err(), a.Done.failed()))
		if err != nil && out.Skipped == "" {
			out.Failed = err.Error()
		}
		a.Log("%s, %s: %s", name, s.name, out.word())
		if out.Skipped != "" {
			a.Log("  the command: %s", out.Command)
		}
		r.Steps = append(r.Steps, out)
	}
}

func (s *AllStep) word() string {
	switch {
	case s.Skipped != "":
		return "skipped: " + s.Skipped
	case s.Failed != "":
		return "**failed**: " + s.Failed
	}
	return fmt.Sprintf("%.1f s%s", s.Seconds, map[bool]string{true: ", bars are missed"}[s.Missed])
}

// run runs a command in a process group of its own, which ends with it. One that goes on beyond its time is ended; what `bench train` has kept by then stays.
func (a *All) run(ctx context.Context, out AllStep, s step, most time.Duration) (AllStep, error) {
	argv := append([]string{a.Self}, append(slices.Clone(s.args), "--json")...)
	switch s.args[0] {
	case "synth": // over what a killed run left
		set := s.args[1]
		if err := cmp.Or(os.RemoveAll(set), os.MkdirAll(filepath.Dir(set), 0o755)); err != nil {
			return out, robocache.At(err, robocache.Where{"file": set})
		}
	case "bench":
		if argv = append(argv, "--python", a.Python); s.args[1] == "train" && a.Resume {
			argv = append(argv, "--resume")
		}
	}
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd, errs := runners.Command(limited, argv, nil)
	var text bytes.Buffer
	cmd.Stdout = &text
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its own runners
	began := time.Now()
	err := cmd.Run()
	out.Seconds = time.Since(began).Seconds()
	if json.Valid(text.Bytes()) {
		out.Result = text.Bytes()
	}
	switch {
	case limited.Err() != nil && ctx.Err() == nil:
		out.Skipped = fmt.Sprintf("not over after %.0f s", most.Seconds())
		return out, errSkipped
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == unsupported:
		out.Skipped = runners.LastLine(errs.String())
		return out, errSkipped
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == missed && out.Result != nil:
		out.Missed = true
	case err != nil:
		return out, fmt.Errorf("%w: %s", err, runners.LastLine(errs.String()))
	}
	return out, nil
}
