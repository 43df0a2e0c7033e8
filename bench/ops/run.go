package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
)

// Run is what `robocache-bench ops` was asked for. Its JSON is the process's job.
type Run struct {
	Rows    []Row   `json:"rows"`
	Device  string  `json:"device"` // cpu, cuda
	Threads []int   `json:"-"`      // cpu: one result a row and number of threads
	Rounds  int     `json:"rounds"` // runners take turns so many times
	Seconds float64 `json:"seconds"`
	// wall, or cpu: the thread's own time, of one thread on a machine that is not quiet
	Clock    string               `json:"clock"`
	Runners  []string             `json:"runners"` // peers by name or family; nil: all
	Without  []string             `json:"without"`
	Cache    int64                `json:"cache"` // bytes of the processor's largest
	Tools    runners.Tools        `json:"-"`
	Timeout  time.Duration        `json:"-"` // of one row
	Command  string               `json:"-"`
	Revision string               `json:"-"`
	Log      func(string, ...any) `json:"-"`
}

// Report is a finished `robocache-bench ops`.
type Report struct {
	Command  string            `json:"command"`
	Machine  report.Machine    `json:"machine"`
	Device   *Device           `json:"device,omitempty"`
	Versions map[string]string `json:"versions"`
	Rounds   int               `json:"rounds"`
	Seconds  float64           `json:"seconds"` // a runner and round
	// cpu: figures are of the thread's own CPU time
	Clock string    `json:"clock,omitempty"`
	Cache int64     `json:"cache_bytes"`
	Rows  []*Result `json:"rows"`
}

// Device is the GPU of a report.
type Device struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	Image  string `json:"image"`
	L2     int64  `json:"l2_bytes"`
}

// Measure runs the rows, for each number of threads in a process of its own. One that ends before
// its last row is over fails the row that it was at.
func Measure(ctx context.Context, r Run) (rep *Report, err error) {
	r.Cache = lastCache()
	rep = &Report{
		Command:  r.Command,
		Machine:  report.ThisMachine(r.Revision),
		Versions: map[string]string{},
		Rounds:   r.Rounds,
		Seconds:  r.Seconds,
		Clock:    r.Clock,
		Cache:    r.Cache,
	}
	if r.Device == "cuda" {
		r.Threads = []int{1}
	}
	for _, threads := range r.Threads {
		for left := r; len(left.Rows) > 0; {
			done := len(rep.Rows)
			why, err := left.process(ctx, threads, rep)
			if err != nil {
				return rep, err
			}
			if err := ctx.Err(); err != nil {
				return rep, err
			}
			if left.Rows = left.Rows[len(rep.Rows)-done:]; len(left.Rows) > 0 {
				rep.add(
					&r,
					&Result{
						Row:     left.Rows[0],
						Threads: threads,
						Runners: []Runner{{Name: Ours, Failed: why}},
					},
				)
				left.Rows = left.Rows[1:]
			}
		}
	}
	return rep, nil
}

// process runs rows in a process, as far as it comes, and gives its last words.
func (r *Run) process(ctx context.Context, threads int, rep *Report) (string, error) {
	job := struct {
		*Run
		Threads int `json:"threads"`
	}{r, threads}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	n := strconv.Itoa(threads)
	env := append(
		r.Tools.Env(),
		"PYTHONUNBUFFERED=1",
		"OMP_NUM_THREADS="+n,
		"MKL_NUM_THREADS="+n,
		"OPENBLAS_NUM_THREADS="+n,
		// Results are new memory each call. Kept by malloc, it costs no page faults: the peers'
		// best setting.
		"MALLOC_MMAP_THRESHOLD_=4294967296",
		"MALLOC_TRIM_THRESHOLD_=4294967296",
	)
	if r.Device == "cpu" {
		env = append(env, "GOMAXPROCS="+n) // ours
	}
	encoded, err := json.Marshal(job)
	if err != nil {
		return "", err
	}
	cmd, errs := runners.Command(ctx, append(r.Tools.Script("ops_peers.py"), string(encoded)), env)
	timer := time.AfterFunc(r.Timeout, stop)
	at := 0
	cmd.Stdout = &runners.Lines{Each: func(line string) {
		timer.Reset(r.Timeout)
		res := &Result{Threads: threads}
		said := struct {
			*Result
			Device   *Device           `json:"device"`
			Versions map[string]string `json:"versions"`
		}{Result: res}
		if json.Unmarshal([]byte(line), &said) != nil {
			return
		}
		if maps.Copy(rep.Versions, said.Versions); said.Device != nil {
			rep.Device, rep.Cache = said.Device, said.Device.L2
			return
		}
		res.Row = r.Rows[at]
		at++
		rep.add(r, res)
	}}
	err = cmd.Run()
	_, module, lacks := strings.Cut(errs.String(), "No module named ")
	switch {
	case at == 0 && (lacks || cmd.Process == nil):
		return "", robocache.Unsupported("ops", nil, "%s", cmp.Or(r.Tools.Python+" has no "+
			runners.LastLine(module), "no interpreter")).
			WithCause(notExit(err)).
			WithHint("--python names an interpreter with numpy and robocache; make core lib " +
				"installs one")
	case err == nil:
		return "", nil
	case ctx.Err() != nil:
		return fmt.Sprintf("no answer within %v", r.Timeout), nil
	}
	return fmt.Sprintf("the runners' process ended: %v: %s", err, runners.LastLine(errs.String())),
		nil
}

// notExit is an error but for that of an exit code, which says nothing more.
func notExit(err error) error {
	if _, code := err.(*exec.ExitError); code { //nolint:errorlint // of cmd.Run itself
		return nil
	}
	return err
}

// add adds a row to the report, checks all bars again (one may look at a later row), and says how
// it went.
func (p *Report) add(r *Run, res *Result) {
	if r.Device == "cuda" {
		res.Threads = 0
	}
	p.Rows = append(p.Rows, res)
	p.check()
	line := fmt.Sprintf(
		"%-36s %dt  ours (µs, GB/s, of the copy) %s",
		res.Name,
		res.Threads,
		res.summary(false),
	)
	for _, a := range res.Runners {
		switch {
		case a.always():
		case a.Failed != "":
			line += "; " + a.Name + " failed: " + a.Failed
		default:
			line += "; " + a.Name + " " + report.Digits(a.Hot.Median)
		}
	}
	r.Log("%s", line)
}

func (p *Report) check() {
	for _, res := range p.Rows {
		res.Checks = nil
		for _, b := range res.Bars {
			res.Checks = append(res.Checks, check(b, res, func(name string) *Result {
				if i := slices.IndexFunc(
					p.Rows,
					func(x *Result) bool { return x.Name == name && x.Threads == res.Threads },
				); i >= 0 {
					return p.Rows[i]
				}
				return nil
			}))
		}
	}
}

// lastCache is the bytes of the processor's largest cache; 32 MiB where the system does not say.
func lastCache() int64 {
	for i := 4; i >= 2; i-- {
		text := report.ReadText(fmt.Sprintf("/sys/devices/system/cpu/cpu0/cache/index%d/size", i))
		if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), "K"), 10,
			64); err == nil {
			return n << 10
		}
	}
	return 32 << 20
}
