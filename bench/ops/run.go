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

// Run holds the options of `robocache-bench ops`. Its JSON is the job of the measuring process.
type Run struct {
	Rows    []Row   `json:"rows"`
	Device  string  `json:"device"` // cpu | cuda
	Threads []int   `json:"-"`      // CPU only: one result per row and number of threads
	Rounds  int     `json:"rounds"` // number of interleaved rounds
	Seconds float64 `json:"seconds"`
	// wall, or cpu: the CPU time of the thread, for one thread on a busy machine
	Clock   string   `json:"clock"`
	Runners []string `json:"runners"` // peers by name or family; nil means all
	Without []string `json:"without"`
	// size of the largest cache of the processor, in bytes
	Cache    int64                `json:"cache"`
	Tools    runners.Tools        `json:"-"`
	Timeout  time.Duration        `json:"-"` // per row
	Command  string               `json:"-"`
	Revision string               `json:"-"`
	Log      func(string, ...any) `json:"-"`
}

// Report is the report of `robocache-bench ops`.
type Report struct {
	Command  string            `json:"command"`
	Machine  report.Machine    `json:"machine"`
	Device   *Device           `json:"device,omitempty"`
	Versions map[string]string `json:"versions"`
	Rounds   int               `json:"rounds"`
	Seconds  float64           `json:"seconds"` // per runner and round
	// cpu: figures are CPU time of the thread
	Clock string    `json:"clock,omitempty"`
	Cache int64     `json:"cache_bytes"`
	Rows  []*Result `json:"rows"`
}

// Device describes the GPU of a report.
type Device struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	Image  string `json:"image"`
	L2     int64  `json:"l2_bytes"`
}

// Measure runs the rows. It uses one process per number of threads. If a process ends early, its
// current row fails, and a new process continues with the next row.
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
			why, err := left.runProcess(ctx, threads, rep)
			if err != nil {
				return rep, err
			}
			if err := ctx.Err(); err != nil {
				return rep, err
			}
			if left.Rows = left.Rows[len(rep.Rows)-done:]; len(left.Rows) > 0 {
				rep.addRow(
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

// runProcess runs rows in one process until it ends. It returns the reason if the process ended
// early.
func (r *Run) runProcess(ctx context.Context, threads int, rep *Report) (string, error) {
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
		// Each call allocates memory for its result. Memory that malloc keeps costs no page faults,
		// which is the best setting for the peers.
		"MALLOC_MMAP_THRESHOLD_=4294967296",
		"MALLOC_TRIM_THRESHOLD_=4294967296",
	)
	if r.Device == "cpu" {
		env = append(env, "GOMAXPROCS="+n) // RoboCache's own threads
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
		rep.addRow(r, res)
	}}
	err = cmd.Run()
	_, module, lacks := strings.Cut(errs.String(), "No module named ")
	switch {
	case at == 0 && (lacks || cmd.Process == nil):
		return "", robocache.Unsupported("ops", nil, "%s", cmp.Or(r.Tools.Python+" has no "+
			runners.LastLine(module), "no interpreter")).
			WithCause(withoutExitCode(err)).
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

// withoutExitCode returns err, or nil if it only reports an exit code.
func withoutExitCode(err error) error {
	if _, code := err.(*exec.ExitError); code { //nolint:errorlint // of cmd.Run itself
		return nil
	}
	return err
}

// addRow adds a row to the report and logs it. It checks all bars again, because a bar may refer to
// a later row.
func (p *Report) addRow(r *Run, res *Result) {
	if r.Device == "cuda" {
		res.Threads = 0
	}
	p.Rows = append(p.Rows, res)
	p.checkBars()
	line := fmt.Sprintf(
		"%-36s %dt  ours (µs, GB/s, of the copy) %s",
		res.Name,
		res.Threads,
		res.ourSummary(false),
	)
	for _, a := range res.Runners {
		switch {
		case a.isAlwaysCold():
		case a.Failed != "":
			line += "; " + a.Name + " failed: " + a.Failed
		default:
			line += "; " + a.Name + " " + report.Digits(a.Hot.Median)
		}
	}
	r.Log("%s", line)
}

// checkBars checks the bars of all rows.
func (p *Report) checkBars() {
	for _, res := range p.Rows {
		res.Checks = nil
		for _, b := range res.Bars {
			res.Checks = append(res.Checks, checkBar(b, res, func(name string) *Result {
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

// lastCache returns the size of the processor's largest cache, or 32 MiB if it is unknown.
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
