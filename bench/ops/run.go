package ops

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// OpsRun is what `bench ops` was asked for.
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

// OpsReport is a finished `bench ops`.
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

// OpsDevice is the GPU of a report.
type Device struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	Image  string `json:"image"`
	L2     int64  `json:"l2_bytes"`
}

// timer is a runner on a row, ready to be timed.
type timer interface {
	time(seconds float64, cold bool) ([]float64, error)
}

type candidate struct {
	runner Runner
	c      timer
}

// timedPeer gives a peer's runner the form of ours.
type timedPeer struct {
	*peerRunner
	timeout time.Duration
}

func (p timedPeer) time(seconds float64, cold bool) ([]float64, error) {
	return p.peerRunner.time(seconds, cold, p.timeout)
}

// RunOps measures the rows: of each, ours is compared with the reference before it is timed, and the peers' values are looked at; then the runners
// take turns. A wrong runner gives no figure.
func Measure(ctx context.Context, r Run) (*Report, error) {
	rep := &Report{Command: r.Command, Machine: report.ThisMachine(), Versions: map[string]string{}, Rounds: r.Rounds, Seconds: r.Seconds, Clock: r.Clock, Cache: lastCache()}
	rep.Machine.Revision = r.Revision
	dir, err := os.MkdirTemp("", "robocache-ops-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if r.Device == "cuda" {
		return rep, r.cuda(ctx, rep, dir)
	}
	for _, threads := range r.Threads {
		if err := r.cpu(ctx, rep, dir, threads); err != nil {
			return rep, err
		}
	}
	return rep, nil
}

func (r *Run) cpu(ctx context.Context, rep *Report, dir string, threads int) error {
	before := runtime.GOMAXPROCS(threads)
	defer runtime.GOMAXPROCS(before)
	now := wallTime
	if r.Clock == "cpu" {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		now = threadTime
	}
	peers, err := r.peers(ctx, "cpu", threads, 1)
	if err != nil {
		return err
	}
	defer closePeers(peers)
	for i := range r.Rows {
		row := &r.Rows[i]
		res := &Result{Row: *row, Threads: threads}
		in, err := newInputs(&res.Work)
		if err != nil {
			return err
		}
		res.Bytes = res.Work.bytes(in)
		copies := copiesFor(res.Bytes, rep.Cache)
		truth, err := newTruth(&res.Work, in, kernel.Reference{})
		if err != nil {
			return robocache.At(err, robocache.Where{"row": row.Name})
		}
		var field []*candidate
		own, err := in.call(&res.Work)
		if err != nil {
			return err
		}
		for _, b := range hostBackends(threads) {
			if res.Work.Kind == "call" {
				break // ours is one of the peers' processes: Python
			}
			if b.name != Ours && (r.Runners == nil || !wanted(b.name, r.Runners, r.Without)) {
				continue
			}
			e := &candidate{runner: Runner{Name: b.name, Setting: b.setting}, c: backendRunner(b.backend, own, copies, now)}
			if err := own.run(b.backend); err != nil {
				e.runner.Failed = err.Error()
			} else if err := truth.compare(own.results()); err != nil {
				e.runner.Failed = err.Error()
			} else if b.name == Ours {
				res.Checked = truth.words()
			}
			field = append(field, e)
		}
		if res.Work.isOp() && wanted("memcpy go", nil, r.Without) {
			field = append(field, &candidate{Runner{Name: "memcpy go", Setting: "copy of half the bytes, " + strconv.Itoa(threads) + " goroutines"}, copyRunner(res.Bytes, threads, copies, now)})
		}
		theirs, err := r.setup(rep, peers, res, in, truth, dir, threads, copies)
		if err != nil {
			return err
		}
		field = append(field, theirs...)
		if err := r.rounds(ctx, res, field, r.Cold && res.Work.isOp()); err != nil {
			return err
		}
		r.drop(peers, row.Name)
		if err := r.finish(rep, res); err != nil {
			return err
		}
	}
	return nil
}

// peers starts the device's scripts, so many processes of each.
func (r *Run) peers(ctx context.Context, device string, threads, each int) ([]*peer, error) {
	scripts, err := peerScripts(r.Tools.Dir, device)
	if err != nil {
		return nil, err
	}
	var out []*peer
	if slices.Equal(r.Runners, []string{"none"}) {
		return nil, nil
	}
	for _, s := range scripts {
		for range each {
			p, err := startPeer(ctx, &r.Tools, s, device, threads)
			if err != nil {
				r.Log("%v: no peers", err)
				closePeers(out)
				return nil, nil
			}
			out = append(out, p)
		}
	}
	// All at once: importing torch takes seconds.
	var wg sync.WaitGroup
	for _, p := range out {
		wg.Go(func() {
			if _, err := p.ask(peerAsk{Cmd: "hello", Device: device, Threads: threads, Clock: r.Clock}, r.Timeout); err != nil {
				r.Log("%v", err)
			}
		})
	}
	wg.Wait()
	return out, nil
}

func closePeers(peers []*peer) {
	for _, p := range peers {
		p.close()
	}
}

// setup gives the row to the peers; each one's answer is a runner, and its values are looked at.
func (r *Run) setup(rep *Report, peers []*peer, res *Result, in *inputs, truth *truth, dir string, threads, copies int) ([]*candidate, error) {
	if len(peers) == 0 || res.Curve != "" && r.Runners == nil {
		return nil, nil // a curve is ours and the copy: peers only where they are named
	}
	files, err := in.write(&res.Work, dir, res.Name)
	if err != nil {
		return nil, err
	}
	index, want := truth.probes(&res.Work, 400)
	var out []*candidate
	for _, p := range peers {
		row := &peerRow{Name: res.Name, Work: res.Work, Device: res.Device, Threads: threads, Bytes: res.Bytes, Copies: copies}
		ans, err := p.ask(peerAsk{Cmd: "setup", Row: row, Runners: r.Runners, Without: r.Without, Inputs: files}, r.Timeout)
		for k, v := range ans.Versions {
			rep.Versions[k] = v
		}
		if err != nil {
			r.Log("%s: %v", res.Name, err)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(ans.Runners)) {
			a := ans.Runners[name]
			e := &candidate{runner: Runner{Name: name, Setting: a.Setting, Failed: a.Error}}
			if a.Error == "" {
				runner := &peerRunner{p, res.Name, name}
				e.c = timedPeer{runner, r.Timeout}
				if !a.Other {
					if err := runner.check(&res.Work, index, want, r.Timeout); err != nil {
						e.runner.Failed = err.Error()
					}
				}
			}
			out = append(out, e)
		}
	}
	for _, f := range files {
		os.Remove(f.File)
	}
	return out, nil
}

func (r *Run) drop(peers []*peer, name string) {
	for _, p := range peers {
		if p.gone == nil {
			_, _ = p.ask(peerAsk{Cmd: "drop", Name: name}, r.Timeout)
		}
	}
}

// rounds lets the runners take turns; a round's figure is the median of its chunks.
func (r *Run) rounds(ctx context.Context, res *Result, field []*candidate, withCold bool) error {
	runtime.GC()
	for round := range r.Rounds {
		for _, cold := range []bool{false, true} {
			if cold && !withCold {
				continue
			}
			for _, e := range field {
				// No bar asks for a peer's cold figure: one will do.
				if e.runner.Failed != "" || cold && round > 0 && !e.runner.judgedCold() {
					continue
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				us, err := e.c.time(r.Seconds, cold)
				switch {
				case err != nil:
					e.runner.Failed = err.Error()
				case cold:
					e.runner.Cold.Add(median(us))
				default:
					e.runner.Hot.Add(median(us))
				}
			}
		}
	}
	for _, e := range field {
		res.Runners = append(res.Runners, e.runner)
	}
	return nil
}

func median(v []float64) float64 {
	s := slices.Clone(v)
	sort.Float64s(s)
	n := len(s)
	if n == 0 {
		return 0
	}
	if n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[n/2]
}

// finish adds a row to the report, judges all bars again (one may look at a later row), and says how it went.
func (r *Run) finish(rep *Report, res *Result) error {
	rep.Rows = append(rep.Rows, res)
	rep.judge()
	ours := "–"
	if a := res.runner(Ours); a != nil {
		ours = report.Short(a.Hot) + " µs"
		if a.Failed != "" {
			ours = "failed: " + a.Failed
		}
	}
	line := fmt.Sprintf("%-36s %dt  ours %s, share of the copy %s", res.Name, res.Threads, ours, report.Short(res.share(false)))
	for _, a := range res.Runners {
		switch {
		case a.judgedCold():
		case a.Failed != "":
			line += "; " + a.Name + " failed: " + a.Failed
		default:
			line += "; " + a.Name + " " + report.Digits(a.Hot.Median)
		}
	}
	r.Log("%s", line)
	if r.Keep != nil {
		return r.Keep(rep)
	}
	return nil
}

func (rep *Report) judge() {
	for _, res := range rep.Rows {
		res.Verdicts = nil
		for _, b := range res.Bars {
			res.Verdicts = append(res.Verdicts, b.Judge(res, func(name string) *Result {
				for _, x := range rep.Rows {
					if x.Name == name && x.Threads == res.Threads {
						return x
					}
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

// words says what was compared.
func (t *truth) words() string {
	n := 0
	for _, p := range t.parts {
		n += len(p.bytes)
	}
	s := fmt.Sprintf("%d bytes equal the reference's", n)
	if len(t.parts) == 3 && t.pw.Kind == "fuse" {
		s += " (first, middle and last batch entries)"
	}
	if t.pw.Mode == "slerp" {
		s = fmt.Sprintf("%d bytes within a float32 ulp of the reference's", n)
	}
	return s
}

// lastCache is the bytes of the processor's largest cache; 32 MiB where the system does not say.
func lastCache() int64 {
	for i := 4; i >= 2; i-- {
		b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu0/cache/index%d/size", i))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(b)), "K"), 10, 64); err == nil {
			return n << 10
		}
	}
	return 32 << 20
}

// copiesFor is how many sets of buffers a cache of so many bytes cannot hold, four times over.
func copiesFor(bytes, cache int64) int {
	return int(min(256, max(1, (4*cache+bytes-1)/max(bytes, 1))))
}
