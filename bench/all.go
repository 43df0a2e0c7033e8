package bench

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
)

// All is a run of `robocache-bench all`: the whole suite, each part by the commands robocache and
// robocache-bench, within a time.
type All struct {
	Out, Work string
	Time      time.Duration
	Parts     []string // nil: all
	GPUs      int
	Tools     runners.Tools
	Revision  string
	Done      *Finished
	Resume    bool // Done has what is over
	Log       func(format string, a ...any)

	end time.Time
}

// part is a part of the suite. A command of it is kept in rows.jsonl when it is over.
type part struct {
	Name    string
	Share   float64
	Needs   []string
	Repeats int
	Each    []string // its steps are for each of these
	Steps   []step
}

// step is a command of robocache or robocache-bench.
type step struct {
	Name, Line string // with variables
	Least, Few float64
	Needs      []string
	args       []string
}

//go:embed all.yaml
var allYAML []byte

// suite is what all.yaml has, and says what is what.
var suite = sync.OnceValue(func() *suiteOf { s := report.Data[suiteOf](allYAML); return &s })

type suiteOf struct {
	Parts  []part // in their order
	Claims []struct {
		Claim, Why string
		Measured   []struct {
			Metric, Unit string
			Of           []string
		}
	}
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
}

// unsupported is the exit code of what this machine cannot do, missed that of a bar that was not
// met.
var _, unsupported = robocache.ClassOf(robocache.ErrUnsupported)

const missed = 3

// of kernels that both a CPU and a GPU have
const fewRows = "resample-256x100,fuse3-256,voxel-count-500k"

var (
	errSkipped = errors.New("skipped")
	errShort   = errors.New("too little time is left")
)

// lacks says what is not here of what a part or a step needs.
func (a *All) lacks(needs []string) string {
	var packages []string
	for _, n := range needs {
		switch _, noProgram := exec.LookPath(n); {
		case n == "gpu" && a.GPUs == 0:
			return "no CUDA device"
		case n == "gpus" && a.GPUs == 1:
			return "one GPU is here; the share went to the others"
		case n == "ffmpeg" && noProgram != nil:
			return "no encoder: the ffmpeg program is not here"
		case !slices.Contains([]string{"gpu", "gpus", "ffmpeg"}, n):
			packages = append(packages, n)
		}
	}
	if packages == nil {
		return ""
	}
	look := "import importlib.util as u, sys; print(*[p for p in sys.argv[1:] if not " +
		"u.find_spec(p)])"
	out, err := exec.Command(a.Tools.Python, append([]string{"-c", look}, packages...)...).
		Output()
		//nolint:gosec // the user's interpreter
	if missing := strings.Fields(string(out)); err != nil {
		return a.Tools.Python + " does not run"
	} else if len(missing) > 0 {
		return a.Tools.Python + " has no " + strings.Join(missing, " and no ")
	}
	return ""
}

// commands are a part's steps as they are run here; the time that the part has chooses their
// repeats.
func (a *All) commands(p part, left time.Duration) (out []step) {
	few := a.Time < 10*time.Minute // small sets
	size := func(n, small int) string {
		return strconv.Itoa(map[bool]int{true: small, false: n}[few])
	}
	var threads []string
	for n := 1; n <= min(runtime.NumCPU(), 16); n *= 2 {
		threads = append(threads, strconv.Itoa(n))
	}
	v := map[string]string{
		"set": filepath.Join(
			a.Work,
			map[bool]string{true: "all-few", false: "all"}[few],
		),
		"work":          a.Work,
		"out":           a.Out,
		"heterogeneous": size(5000, 500),
		"rtx":           size(1000, 100),
		"last": size(
			4999,
			499,
		),
		"episodes": size(20, 2),
		"workers":  strconv.Itoa(min(8, runtime.NumCPU())),
		"threads":  strings.Join(threads, ","),
		"most":     threads[len(threads)-1],
		"gpus":     strconv.Itoa(max(a.GPUs, 2)),
	}
	switch {
	case p.Name == "load": // the baseline reads with h5py; ours does not
		v["loaders"] = map[bool]string{
			true:  "robocache,torch",
			false: "robocache",
		}[a.lacks([]string{"h5py"}) == ""]
	case p.Name == "decode":
		v["random"] = map[bool]string{
			true:  "robocache,pyav",
			false: "robocache",
		}[a.lacks([]string{"av"}) == ""]
	case p.Name == "ops" && (left < 2*time.Minute || a.lacks([]string{"torch"}) != ""):
		v["peers"], v["rows"] = "--runners=none", "--rows="+fewRows
	}
	expand := func(text string) string {
		return os.Expand(text, func(name string) string { return v[name] })
	}
	each := cmp.Or(len(p.Each), 1)
	for i := range each * len(p.Steps) {
		s := p.Steps[i%len(p.Steps)]
		if p.Each != nil {
			v["each"] = p.Each[i/len(p.Steps)]
		}
		if few && s.Few > 0 {
			s.Least = s.Few
		}
		v["repeats"] = strconv.Itoa(
			min(max(int(left.Seconds()/s.Least)/(each*len(p.Steps)), 1), p.Repeats),
		)
		for _, w := range strings.Fields(s.Line) {
			if w = expand(w); w != "" {
				s.args = append(s.args, w)
			}
		}
		if s.Name, s.Line = expand(s.Name), strings.Join(s.args, " "); a.lacks(s.Needs) == "" {
			out = append(out, s)
		}
	}
	return out
}

// AllNames lists the parts.
func AllNames() (out []string) {
	for _, p := range suite().Parts {
		out = append(out, p.Name)
	}
	return out
}

// Check refuses what cannot be run, before a file is touched.
func (a *All) Check() error {
	_, err := report.Pick("part", AllNames(), func(n string) string { return n }, a.Parts)
	switch {
	case err != nil:
		return err
	case a.Time < 20*time.Second:
		return robocache.Misuse("all", nil, "--time").Expected("20s or more", a.Time.String())
	case a.Out == "":
		return robocache.Misuse("all", nil, "--out").
			Expected("a folder for rows.jsonl and the results", "none")
	}
	return nil
}

// Run runs the parts, each within its share of the time that is left.
func (a *All) Run(ctx context.Context) (r *AllReport, err error) {
	a.end = time.Now().Add(a.Time)
	if slices.Contains(a.Parts, "load") || slices.Contains(a.Parts, "threads") {
		a.Parts = append(a.Parts, "synth") // they read what it makes
	}
	r = &AllReport{Time: a.Time.String(), Machine: report.ThisMachine(a.Revision)}
	var here []part
	var shares float64
	for _, p := range suite().Parts {
		if a.Parts != nil && !slices.Contains(a.Parts, p.Name) {
			continue
		}
		if why := a.lacks(p.Needs); why != "" {
			for _, s := range a.commands(p, time.Hour) {
				r.Steps = append(
					r.Steps,
					AllStep{Part: p.Name, Step: s.Name, Command: s.Line, Skipped: why},
				)
			}
			a.Log("skipped %s: %s", p.Name, why)
			continue
		}
		here, shares = append(here, p), shares+p.Share
	}
	total, left := shares, func() time.Duration { return time.Until(a.end) - a.Time*3/100 }
	short := map[string][]step{}
	for _, p := range here {
		// What is run follows from --time alone, so that a resumed run has the same commands; how
		// long it may take, from what is left.
		steps := a.commands(p, time.Duration(float64(a.Time)*p.Share/total))
		if short[p.Name], err = a.part(ctx, p.Name, steps,
			time.Duration(float64(left())*p.Share/shares), r); err != nil {
			return r, err
		}
		shares -= p.Share
	}
	for _, p := range here { // what its own share was too short for, in what all have left over
		unrun, err := a.part(ctx, p.Name, short[p.Name], left(), r)
		if err != nil {
			return r, err
		}
		for _, s := range unrun {
			out := AllStep{
				Part:    p.Name,
				Step:    s.Name,
				Command: s.Line,
				Skipped: fmt.Sprintf("needs %.0f s, %.0f left", s.Least, max(left().Seconds(), 0)),
			}
			a.over(r, out)
		}
	}
	slices.SortStableFunc(r.Steps, func(x, y AllStep) int {
		return cmp.Compare(slices.Index(AllNames(), x.Part), slices.Index(AllNames(), y.Part))
	})
	return r, nil
}

// part runs the commands of a part; what one leaves of its time goes to the next. It gives those
// that too little is left for.
func (a *All) part(
	ctx context.Context,
	name string,
	steps []step,
	budget time.Duration,
	r *AllReport,
) (short []step, err error) {
	end := time.Now().Add(budget)
	for i, s := range steps {
		key := []any{"all", name, s.args, a.Revision, r.Machine.CPU, r.Machine.Cores}
		if s.args[1] == "synth" && !exists(s.args[2]) { // the row was kept, and the set was not
			if err := a.Done.forget(key); err != nil {
				return short, err
			}
		}
		out, err := Once(a.Done, key, func() (AllStep, error) {
			out, left := AllStep{Part: name, Step: s.Name, Command: s.Line}, time.Until(end)
			if left.Seconds() < s.Least {
				return out, errShort
			}
			return a.run(
				ctx,
				out,
				s,
				min(
					max(2*left/time.Duration(len(steps)-i), time.Duration(3e9*s.Least)),
					time.Until(a.end),
				),
			)
		})
		if err := cmp.Or(ctx.Err(), a.Done.failed()); err != nil {
			return short, err
		}
		if errors.Is(err, errShort) {
			short = append(short, s)
			continue
		}
		if err != nil && out.Skipped == "" {
			out.Failed = err.Error()
		}
		a.over(r, out)
	}
	return short, nil
}

// over is the end of a step.
func (a *All) over(r *AllReport, out AllStep) {
	a.Log("%s, %s: %s", out.Part, out.Step, out.word())
	if out.Skipped != "" {
		a.Log("  the command: %s", out.Command)
	}
	r.Steps = append(r.Steps, out)
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

// run runs a command in a process group of its own, which ends with it. One that goes on beyond its
// time is ended; what `robocache-bench train` has kept by then stays.
func (a *All) run(ctx context.Context, out AllStep, s step, most time.Duration) (AllStep, error) {
	program, args := s.args[0], s.args[1:]
	argv := slices.Concat(a.Tools.Product, args, []string{"--json"})
	switch {
	case args[0] == "synth": // over what a killed run left
		set := args[1]
		if err := cmp.Or(os.RemoveAll(set), os.MkdirAll(filepath.Dir(set), 0o755)); err != nil {
			return out, robocache.At(err, robocache.Where{"file": set})
		}
	case program == "robocache-bench":
		argv = slices.Concat(a.Tools.Self, args, []string{"--json", "--python", a.Tools.Python})
		if args[0] == "train" && a.Resume {
			argv = append(argv, "--resume")
		}
	}
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd, errs := runners.Command(limited, argv, a.Tools.Env())
	var text bytes.Buffer
	cmd.Stdout = &text
	// it ends its own runners
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
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
