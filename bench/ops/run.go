package ops

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cpu"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// Run is what `bench ops` was asked for.
type Run struct {
	Rows     []Row
	Device   string // cpu, cuda
	Ordinal  int    // of the device
	Threads  []int  // cpu: one result a row and number of threads
	Rounds   int    // runners take turns so many times
	Seconds  float64
	Cold     bool
	Clock    string   // wall, or cpu: the thread's own time, of one thread on a machine that is not quiet
	Runners  []string // peers by name or family; nil: all
	Without  []string
	Tools    runners.Tools
	Timeout  time.Duration // of one answer of a peer
	Command  string
	Revision string
	Keep     func(*Report) error // after each row
	Log      func(format string, a ...any)
}

// Report is a finished `bench ops`.
type Report struct {
	Command  string            `json:"command"`
	Machine  report.Machine    `json:"machine"`
	Device   *Device           `json:"device,omitempty"`
	Versions map[string]string `json:"versions"`
	Rounds   int               `json:"rounds"`
	Seconds  float64           `json:"seconds"`         // a runner and round
	Clock    string            `json:"clock,omitempty"` // cpu: figures are of the thread's own CPU time
	Cache    int64             `json:"cache_bytes"`
	Rows     []*Result         `json:"rows"`
}

// Device is the GPU of a report.
type Device struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	Image  string `json:"image"`
	L2     int64  `json:"l2_bytes"`
}

// timer is a runner on a row, ready to be timed: µs a call, a figure a chunk.
type timer interface {
	time(seconds float64, cold bool) []float64
}

type candidate struct {
	runner Runner
	c      timer
}

// session is a run on one device with one number of threads.
type session struct {
	r       *Run
	rep     *Report
	dir     string
	threads int
	gpu     *gpu // nil: the host
	now     func() time.Duration
	ref     kernel.Backend
	peers   []*peer
	mu      sync.Mutex
}

// rowRun is a row that is being made ready and measured.
type rowRun struct {
	res    *Result
	in     *inputs
	call   kernel.Op
	truth  *truth
	copies int
	peer   *peer // that holds it; nil: there are none
	theirs []*candidate
	undo   undo
	err    error
}

// Measure runs the rows: of each, ours is compared with the reference before it is timed, and the peers' values are looked at; then the runners
// take turns. A wrong runner gives no figure.
func Measure(ctx context.Context, r Run) (rep *Report, err error) {
	defer guard.Into(&err)
	rep = &Report{Command: r.Command, Machine: report.ThisMachine(r.Revision), Versions: map[string]string{}, Rounds: r.Rounds, Seconds: r.Seconds, Clock: r.Clock, Cache: lastCache()}
	dir := guard.Must(os.MkdirTemp("", "robocache-ops-"))
	defer os.RemoveAll(dir)
	if r.Device == "cuda" {
		var u undo
		defer u.all()
		g := openGPU(r.Ordinal, &u)
		rep.Device = g.describe()
		rep.Cache = rep.Device.L2
		// The truth is kernel/cpu's: equal to the reference to the bit (kernel/conform), and done before a device is tired of waiting.
		(&session{r: &r, rep: rep, dir: dir, threads: 1, gpu: g, ref: cpu.New(0)}).measure(ctx)
		return rep, nil
	}
	for _, threads := range r.Threads {
		s := &session{r: &r, rep: rep, dir: dir, threads: threads, now: wallTime, ref: kernel.Reference{}}
		if r.Clock == "cpu" {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			s.now = threadTime
		}
		before := runtime.GOMAXPROCS(threads)
		err := guard.Try(func() { s.measure(ctx) })
		runtime.GOMAXPROCS(before)
		guard.Check(err)
	}
	return rep, nil
}

// peerProcesses is how many interpreters compile the peers' kernels beside each other for a GPU: torch.compile takes seconds a shape, and a lease is short.
const peerProcesses = 6

// measure makes rows ready and lets their runners take turns. For a GPU all rows are made ready first, many at once.
func (s *session) measure(ctx context.Context) {
	defer s.closePeers()
	s.startPeers(ctx)
	rows := make([]*rowRun, len(s.r.Rows))
	var g errgroup.Group
	g.SetLimit(2 * peerProcesses)
	for i := range rows {
		row := &rowRun{res: &Result{Row: s.r.Rows[i], Threads: s.threads}}
		if len(s.peers) > 0 {
			row.peer = s.peers[i%len(s.peers)]
		}
		if rows[i] = row; s.gpu != nil {
			row.res.Threads = 0
			g.Go(func() error { row.err = guard.Try(func() { s.ready(row) }); return nil })
		}
	}
	_ = g.Wait()
	for i, row := range rows {
		func() {
			defer guard.In("row", row.res.Name)
			if guard.Check(row.err); s.gpu == nil {
				s.ready(row)
			}
			if row.res.Skipped == "" {
				s.turns(ctx, row)
			}
		}()
		if row.peer != nil {
			_, _ = row.peer.ask(map[string]any{"cmd": "drop", "name": row.res.Name}, s.r.Timeout)
		}
		rows[i] = nil
		s.finish(row.res)
	}
}

// ready makes a row's inputs and truth, and has the peers set it up.
func (s *session) ready(row *rowRun) {
	w := &row.res.Work
	if n, _ := cuda.Count(); strings.HasPrefix(w.Kind, "shards") && n < 2 {
		row.res.Skipped = fmt.Sprintf("needs two devices: %d here", n)
		return
	}
	if w.Kind == "flow" || w.Kind == "shards-host" {
		// Inputs are made on the spot, page-locked. All of them cross the bus, whether a target reads them or not.
		st := w.Streams[0]
		row.res.Bytes = int64(w.B) * int64(st.S*(st.D*elementSize(w.DType)+8)+w.T*(st.D*elementSize(w.Out)+8))
		return
	}
	row.in = guard.Must(newInputs(w))
	row.res.Bytes = w.bytes(row.in)
	row.copies = int(min(256, max(1, (4*s.rep.Cache+row.res.Bytes-1)/max(row.res.Bytes, 1)))) // that the caches cannot hold, four times over
	row.truth, row.call = guard.Must(newTruth(w, row.in, s.ref)), guard.Must(row.in.call(w))
	s.setup(row)
}

// turns lets the runners of a row take turns; a round's figure is the median of its chunks.
func (s *session) turns(ctx context.Context, row *rowRun) {
	defer row.undo.all()
	field := []*candidate{{runner: Runner{Name: Ours}}}
	if err := guard.Try(func() {
		switch kind := row.res.Work.Kind; {
		case kind == "call": // ours is one of the peers' processes: Python
			field = nil
		case kind == "flow":
			field = s.flowRow(row)
		case kind == "shards" || kind == "shards-host":
			field = s.shardRow(row)
		case s.gpu != nil:
			field = s.gpuRow(row)
		default:
			field = s.hostRow(row)
		}
	}); err != nil {
		field[0].runner.Failed = err.Error()
	}
	field = append(field, row.theirs...)
	runtime.GC()
	for round := range s.r.Rounds {
		for _, cold := range []bool{false, true} {
			if cold && !(s.r.Cold && row.res.Work.isOp()) {
				continue
			}
			for _, e := range field {
				// No bar asks for a peer's cold figure: one will do.
				if e.runner.Failed != "" || cold && round > 0 && !e.runner.always() {
					continue
				}
				guard.Check(ctx.Err())
				if err := guard.Try(func() { e.runner.us(cold).Add(report.SpreadOf(e.c.time(s.r.Seconds, cold)).Median) }); err != nil {
					e.runner.Failed = err.Error()
				}
			}
		}
	}
	for _, e := range field {
		row.res.Runners = append(row.res.Runners, e.runner)
	}
}

// finish adds a row to the report, checks all bars again (one may look at a later row), and says how it went.
func (s *session) finish(res *Result) {
	s.rep.Rows = append(s.rep.Rows, res)
	s.rep.check()
	line := fmt.Sprintf("%-36s %dt  ours (µs, GB/s, of the copy) %s", res.Name, res.Threads, res.summary(false))
	for _, a := range res.Runners {
		switch {
		case a.always():
		case a.Failed != "":
			line += "; " + a.Name + " failed: " + a.Failed
		default:
			line += "; " + a.Name + " " + report.Digits(a.Hot.Median)
		}
	}
	s.r.Log("%s", line)
	if s.r.Keep != nil {
		guard.Check(s.r.Keep(s.rep))
	}
}

// setup gives the row to the peers' process; it answers which runners do it, and their values are looked at.
func (s *session) setup(row *rowRun) {
	res, r := row.res, s.r
	if row.peer == nil || res.Curve != "" && r.Runners == nil {
		return // a curve is ours and the copy: peers only where they are named
	}
	files := row.in.write(&res.Work, s.dir, res.Name)
	defer func() {
		for _, f := range files {
			os.Remove(f.File)
		}
	}()
	index, want := row.truth.probes(400)
	described := struct {
		Work
		Name    string `json:"name"`
		Device  string `json:"device"`
		Threads int    `json:"threads"`
		Bytes   int64  `json:"bytes"`
		Copies  int    `json:"copies"`
	}{res.Work, res.Name, res.Device, s.threads, res.Bytes, row.copies}
	ans, err := row.peer.ask(map[string]any{"cmd": "setup", "row": described, "runners": r.Runners, "without": r.Without, "inputs": files}, r.Timeout)
	s.mu.Lock()
	maps.Copy(s.rep.Versions, ans.Versions)
	s.mu.Unlock()
	if err != nil {
		r.Log("%s: %v", res.Name, err)
	}
	for _, name := range slices.Sorted(maps.Keys(ans.Runners)) {
		a := ans.Runners[name]
		c := &peerRunner{row.peer, res.Name, name, r.Timeout}
		if a.Error == "" && !a.Other {
			if err := guard.Try(func() { c.check(&res.Work, index, want) }); err != nil {
				a.Error = err.Error()
			}
		}
		row.theirs = append(row.theirs, &candidate{Runner{Name: name, Setting: a.Setting, Failed: a.Error}, c})
	}
}

func (p *Report) check() {
	for _, res := range p.Rows {
		res.Checks = nil
		for _, b := range res.Bars {
			res.Checks = append(res.Checks, check(b, res, func(name string) *Result {
				if i := slices.IndexFunc(p.Rows, func(x *Result) bool { return x.Name == name && x.Threads == res.Threads }); i >= 0 {
					return p.Rows[i]
				}
				return nil
			}))
		}
	}
}

// wanted says whether a runner is asked for.
func wanted(name string, runners, without []string) bool {
	in := func(list []string) bool {
		return slices.ContainsFunc(list, func(f string) bool { return family(f, name) })
	}
	return (len(runners) == 0 || in(runners)) && !in(without)
}

// lastCache is the bytes of the processor's largest cache; 32 MiB where the system does not say.
func lastCache() int64 {
	for i := 4; i >= 2; i-- {
		text := report.ReadText(fmt.Sprintf("/sys/devices/system/cpu/cpu0/cache/index%d/size", i))
		if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), "K"), 10, 64); err == nil {
			return n << 10
		}
	}
	return 32 << 20
}
