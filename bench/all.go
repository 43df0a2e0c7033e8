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

// All describes a run of `robocache-bench all`: the whole suite within a given time. Each part runs
// the commands robocache and robocache-bench.
type All struct {
	Out, Work string
	Time      time.Duration
	Parts     []string // nil selects all parts
	GPUs      int
	Tools     runners.Tools
	Revision  string
	Done      *Finished
	Resume    bool // Done contains the completed steps of an earlier run
	Log       func(format string, a ...any)

	deadline time.Time
}

// suitePart is a part of the suite. Each completed command is saved in rows.jsonl.
type suitePart struct {
	Name    string
	Share   float64
	Needs   []string
	Repeats int
	Each    []string // the steps are repeated for each of these values
	Steps   []suiteStep
}

// suiteStep is a command of robocache or robocache-bench.
type suiteStep struct {
	Name, Line string // may contain variables
	Least, Few float64
	Needs      []string
	args       []string
}

//go:embed all.yaml
var allYAML []byte

// suiteTables returns the parsed all.yaml, which also describes its fields.
var suiteTables = sync.OnceValue(
	func() *suiteData { s := report.Data[suiteData](allYAML); return &s },
)

type suiteData struct {
	Parts  []suitePart // in the order in which they run
	Claims []struct {
		Claim, Why string
		Measured   []struct {
			Metric, Unit string
			Of           []string
		}
	}
}

// AllStep reports a command that was run, or why it was skipped.
type AllStep struct {
	Part    string          `json:"part"`
	Step    string          `json:"step"`
	Command string          `json:"command"`
	Seconds float64         `json:"seconds"`
	Skipped string          `json:"skipped,omitempty"`
	Failed  string          `json:"failed,omitempty"`
	Missed  bool            `json:"missed,omitempty"` // one of its bars was missed
	Result  json.RawMessage `json:"result,omitempty"` // the --json output of the command
}

// exitUnsupported is the exit code for an operation that this machine does not support.
var _, exitUnsupported = robocache.ClassOf(robocache.ErrUnsupported)

// exitMissed is the exit code if a bar was missed.
const exitMissed = 3

// fewOpsRows lists kernels that exist on both CPU and GPU.
const fewOpsRows = "resample-256x100,fuse3-256,voxel-count-500k"

var (
	errSkipped = errors.New("skipped")
	errShort   = errors.New("too little time is left")
)

// missingNeed describes the first need of a part or step that this machine does not satisfy. It
// returns "" if all are satisfied.
func (a *All) missingNeed(needs []string) string {
	var packages []string
	for _, n := range needs {
		switch _, noProgram := exec.LookPath(n); {
		case n == "gpu" && a.GPUs == 0:
			return "no CUDA device"
		case n == "gpus" && a.GPUs == 1:
			return "there is only one GPU; the other parts get the time"
		case n == "ffmpeg" && noProgram != nil:
			return "no encoder: the ffmpeg program is not installed"
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

// partCommands returns the steps of a part with all variables replaced. The number of repeats
// depends on the time for the part.
func (a *All) partCommands(p suitePart, left time.Duration) (out []suiteStep) {
	few := a.Time < 10*time.Minute // use small sets
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
	case p.Name == "load": // The baseline reads with h5py; RoboCache does not.
		v["loaders"] = map[bool]string{
			true:  "robocache,torch",
			false: "robocache",
		}[a.missingNeed([]string{"h5py"}) == ""]
	case p.Name == "decode":
		v["random"] = map[bool]string{
			true:  "robocache,pyav",
			false: "robocache",
		}[a.missingNeed([]string{"av"}) == ""]
	case p.Name == "ops" && (left < 2*time.Minute || a.missingNeed([]string{"torch"}) != ""):
		v["peers"], v["rows"] = "--runners=none", "--rows="+fewOpsRows
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
		if s.Name, s.Line = expand(s.Name), strings.Join(s.args, " "); a.missingNeed(s.Needs) ==
			"" {
			out = append(out, s)
		}
	}
	return out
}

// AllNames returns the names of the parts.
func AllNames() (out []string) {
	for _, p := range suiteTables().Parts {
		out = append(out, p.Name)
	}
	return out
}

// Check rejects invalid options before any file is written.
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

// Run runs the parts. Each part gets its share of the remaining time.
func (a *All) Run(ctx context.Context) (r *AllReport, err error) {
	a.deadline = time.Now().Add(a.Time)
	if slices.Contains(a.Parts, "load") || slices.Contains(a.Parts, "threads") {
		a.Parts = append(a.Parts, "synth") // these parts read the sets that synth writes
	}
	r = &AllReport{Time: a.Time.String(), Machine: report.ThisMachine(a.Revision)}
	var here []suitePart
	var shares float64
	for _, p := range suiteTables().Parts {
		if a.Parts != nil && !slices.Contains(a.Parts, p.Name) {
			continue
		}
		if why := a.missingNeed(p.Needs); why != "" {
			for _, s := range a.partCommands(p, time.Hour) {
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
	total, left := shares, func() time.Duration { return time.Until(a.deadline) - a.Time*3/100 }
	short := map[string][]suiteStep{}
	for _, p := range here {
		// The commands depend only on --time, so that a resumed run has the same commands. The time
		// limit of a command depends on the remaining time.
		steps := a.partCommands(p, time.Duration(float64(a.Time)*p.Share/total))
		if short[p.Name], err = a.runPart(ctx, p.Name, steps,
			time.Duration(float64(left())*p.Share/shares), r); err != nil {
			return r, err
		}
		shares -= p.Share
	}
	// The remaining time is used for steps that did not fit into the share of their part.
	for _, p := range here {
		unrun, err := a.runPart(ctx, p.Name, short[p.Name], left(), r)
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
			a.recordStep(r, out)
		}
	}
	slices.SortStableFunc(r.Steps, func(x, y AllStep) int {
		return cmp.Compare(slices.Index(AllNames(), x.Part), slices.Index(AllNames(), y.Part))
	})
	return r, nil
}

// runPart runs the commands of a part. Time that one command does not use goes to the next. It
// returns the commands for which too little time was left.
func (a *All) runPart(
	ctx context.Context,
	name string,
	steps []suiteStep,
	budget time.Duration,
	r *AllReport,
) (short []suiteStep, err error) {
	end := time.Now().Add(budget)
	for i, s := range steps {
		key := []any{"all", name, s.args, a.Revision, r.Machine.CPU, r.Machine.Cores}
		// the result was saved, but its set is missing
		if s.args[1] == "synth" && !fileExists(s.args[2]) {
			if err := a.Done.forgetRun(key); err != nil {
				return short, err
			}
		}
		out, err := Once(a.Done, key, func() (AllStep, error) {
			out, left := AllStep{Part: name, Step: s.Name, Command: s.Line}, time.Until(end)
			if left.Seconds() < s.Least {
				return out, errShort
			}
			return a.runCommand(
				ctx,
				out,
				s,
				min(
					max(2*left/time.Duration(len(steps)-i), time.Duration(3e9*s.Least)),
					time.Until(a.deadline),
				),
			)
		})
		if err := cmp.Or(ctx.Err(), a.Done.writeError()); err != nil {
			return short, err
		}
		if errors.Is(err, errShort) {
			short = append(short, s)
			continue
		}
		if err != nil && out.Skipped == "" {
			out.Failed = err.Error()
		}
		a.recordStep(r, out)
	}
	return short, nil
}

// recordStep logs a finished step and adds it to the report.
func (a *All) recordStep(r *AllReport, out AllStep) {
	a.Log("%s, %s: %s", out.Part, out.Step, out.outcomeText())
	if out.Skipped != "" {
		a.Log("  the command: %s", out.Command)
	}
	r.Steps = append(r.Steps, out)
}

// outcomeText describes the outcome of a step.
func (s *AllStep) outcomeText() string {
	switch {
	case s.Skipped != "":
		return "skipped: " + s.Skipped
	case s.Failed != "":
		return "**failed**: " + s.Failed
	}
	return fmt.Sprintf("%.1f s%s", s.Seconds, map[bool]string{true: ", bars are missed"}[s.Missed])
}

// runCommand runs a command in its own process group, which ends with it. A command that exceeds
// its time is stopped. Results that `robocache-bench train` has already saved remain valid.
func (a *All) runCommand(
	ctx context.Context,
	out AllStep,
	s suiteStep,
	most time.Duration,
) (AllStep, error) {
	program, args := s.args[0], s.args[1:]
	argv := slices.Concat(a.Tools.Product, args, []string{"--json"})
	switch {
	case args[0] == "synth": // replaces the incomplete set of an interrupted run
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
	// On SIGTERM, robocache-bench stops its own runners.
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
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == exitUnsupported:
		out.Skipped = runners.LastLine(errs.String())
		return out, errSkipped
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == exitMissed && out.Result != nil:
		out.Missed = true
	case err != nil:
		return out, fmt.Errorf("%w: %s", err, runners.LastLine(errs.String()))
	}
	return out, nil
}
