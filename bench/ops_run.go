package bench

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

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// OpsRun is what `bench ops` was asked for.
type OpsRun struct {
	Rows     []OpsRow
	Device   string // cpu, cuda
	Ordinal  int    // of the device
	Threads  []int  // cpu: one result a row and number of threads
	Rounds   int    // arms take turns so many times
	Seconds  float64
	Cold     bool
	Clock    string   // wall, or cpu: the thread's own time, of one thread on a machine that is not quiet
	Arms     []string // peers by name or family; nil: all
	Without  []string
	Tools    Tools
	Timeout  time.Duration // of one answer of a peer
	Command  string
	Revision string
	Keep     func(*OpsReport) error // after each row
	Log      func(format string, a ...any)
}

// OpsReport is a finished `bench ops`.
type OpsReport struct {
	Command  string            `json:"command"`
	Machine  Machine           `json:"machine"`
	Device   *OpsDevice        `json:"device,omitempty"`
	Versions map[string]string `json:"versions"`
	Rounds   int               `json:"rounds"`
	Seconds  float64           `json:"seconds"`         // an arm and round
	Clock    string            `json:"clock,omitempty"` // cpu: figures are of the thread's own CPU time
	Cache    int64             `json:"cache_bytes"`
	Rows     []*OpsResult      `json:"rows"`
}

// OpsDevice is the GPU of a report.
type OpsDevice struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	Image  string `json:"image"`
	L2     int64  `json:"l2_bytes"`
}

// contestant is an arm on a row, ready to be timed.
type contestant interface {
	time(seconds float64, cold bool) ([]float64, error)
}

type entrant struct {
	arm OpsArm
	c   contestant
}

// judgedCold says whether bars look at the arm's cold figures: ours, and the copies.
func (e *entrant) judgedCold() bool {
	return e.arm.Name == OpsOurs || family("memcpy", e.arm.Name) || family("copy", e.arm.Name)
}

// timedPeer gives a peer's arm the form of ours.
type timedPeer struct {
	*peerArm
	timeout time.Duration
}

func (p timedPeer) time(seconds float64, cold bool) ([]float64, error) {
	return p.peerArm.time(seconds, cold, p.timeout)
}

// RunOps measures the rows: of each, ours is compared with the reference before it is timed, and the peers' values are looked at; then the arms
// take turns. A wrong arm gives no figure.
func RunOps(ctx context.Context, r OpsRun) (*OpsReport, error) {
	rep := &OpsReport{Command: r.Command, Machine: ThisMachine(), Versions: map[string]string{}, Rounds: r.Rounds, Seconds: r.Seconds, Clock: r.Clock, Cache: lastCache()}
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

func (r *OpsRun) cpu(ctx context.Context, rep *OpsReport, dir string, threads int) error {
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
		res := &OpsResult{OpsRow: *row, Threads: threads}
		in, err := newInputs(&res.Work)
		if err != nil {
			return err
		}
		res.Bytes = res.Work.bytes(in)
		copies := copiesFor(res.Bytes, rep.Cache)
		truth, err := newOpsTruth(&res.Work, in, kernel.Reference{})
		if err != nil {
			return robocache.At(err, robocache.Where{"row": row.Name})
		}
		var field []*entrant
		own, err := in.call(&res.Work)
		if err != nil {
			return err
		}
		for _, b := range hostBackends(threads) {
			if res.Work.Kind == "call" {
				break // ours is one of the peers' processes: Python
			}
			if b.name != OpsOurs && (r.Arms == nil || !wanted(b.name, r.Arms, r.Without)) {
				continue
			}
			e := &entrant{arm: OpsArm{Name: b.name, Setting: b.setting}, c: backendArm(b.backend, own, copies, now)}
			if err := own.run(b.backend); err != nil {
				e.arm.Failed = err.Error()
			} else if err := truth.compare(own.results()); err != nil {
				e.arm.Failed = err.Error()
			} else if b.name == OpsOurs {
				res.Checked = truth.words()
			}
			field = append(field, e)
		}
		if res.Work.isOp() && wanted("memcpy go", nil, r.Without) {
			field = append(field, &entrant{OpsArm{Name: "memcpy go", Setting: "copy of half the bytes, " + strconv.Itoa(threads) + " goroutines"}, copyArm(res.Bytes, threads, copies, now)})
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
func (r *OpsRun) peers(ctx context.Context, device string, threads, each int) ([]*opsPeer, error) {
	scripts, err := opsScripts(r.Tools.dir, device)
	if err != nil {
		return nil, err
	}
	var out []*opsPeer
	if slices.Equal(r.Arms, []string{"none"}) {
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
			if _, err := p.ask(opsAsk{Cmd: "hello", Device: device, Threads: threads, Clock: r.Clock}, r.Timeout); err != nil {
				r.Log("%v", err)
			}
		})
	}
	wg.Wait()
	return out, nil
}

func closePeers(peers []*opsPeer) {
	for _, p := range peers {
		p.close()
	}
}

// setup gives the row to the peers; each one's answer is an arm, and its values are looked at.
func (r *OpsRun) setup(rep *OpsReport, peers []*opsPeer, res *OpsResult, in *opsInputs, truth *opsTruth, dir string, threads, copies int) ([]*entrant, error) {
	if len(peers) == 0 || res.Curve != "" && r.Arms == nil {
		return nil, nil // a curve is ours and the copy: peers only where they are named
	}
	files, err := in.write(&res.Work, dir, res.Name)
	if err != nil {
		return nil, err
	}
	index, want := truth.probes(&res.Work, 400)
	var out []*entrant
	for _, p := range peers {
		row := &opsPeerRow{Name: res.Name, OpsWork: res.Work, Device: res.Device, Threads: threads, Bytes: res.Bytes, Copies: copies}
		ans, err := p.ask(opsAsk{Cmd: "setup", Row: row, Arms: r.Arms, Without: r.Without, Inputs: files}, r.Timeout)
		for k, v := range ans.Versions {
			rep.Versions[k] = v
		}
		if err != nil {
			r.Log("%s: %v", res.Name, err)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(ans.Arms)) {
			a := ans.Arms[name]
			e := &entrant{arm: OpsArm{Name: name, Setting: a.Setting, Failed: a.Error}}
			if a.Error == "" {
				arm := &peerArm{p, res.Name, name}
				e.c = timedPeer{arm, r.Timeout}
				if !a.Other {
					if err := arm.check(&res.Work, index, want, r.Timeout); err != nil {
						e.arm.Failed = err.Error()
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

func (r *OpsRun) drop(peers []*opsPeer, name string) {
	for _, p := range peers {
		if p.gone == nil {
			_, _ = p.ask(opsAsk{Cmd: "drop", Name: name}, r.Timeout)
		}
	}
}

// rounds lets the arms take turns; a round's figure is the median of its chunks.
func (r *OpsRun) rounds(ctx context.Context, res *OpsResult, field []*entrant, withCold bool) error {
	runtime.GC()
	for round := range r.Rounds {
		for _, cold := range []bool{false, true} {
			if cold && !withCold {
				continue
			}
			for _, e := range field {
				// No bar asks for a peer's cold figure: one will do.
				if e.arm.Failed != "" || cold && round > 0 && !e.judgedCold() {
					continue
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				us, err := e.c.time(r.Seconds, cold)
				switch {
				case err != nil:
					e.arm.Failed = err.Error()
				case cold:
					e.arm.Cold.add(median(us))
				default:
					e.arm.Hot.add(median(us))
				}
			}
		}
	}
	for _, e := range field {
		res.Arms = append(res.Arms, e.arm)
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
func (r *OpsRun) finish(rep *OpsReport, res *OpsResult) error {
	rep.Rows = append(rep.Rows, res)
	rep.judge()
	ours := "–"
	if a := res.arm(OpsOurs); a != nil {
		ours = short(a.Hot) + " µs"
		if a.Failed != "" {
			ours = "failed: " + a.Failed
		}
	}
	line := fmt.Sprintf("%-36s %dt  ours %s, share of the copy %s", res.Name, res.Threads, ours, short(res.share(false)))
	for _, a := range res.Arms {
		switch {
		case a.Name == OpsOurs || family("memcpy", a.Name) || family("copy", a.Name):
		case a.Failed != "":
			line += "; " + a.Name + " failed: " + a.Failed
		default:
			line += "; " + a.Name + " " + digits(a.Hot.Median)
		}
	}
	r.Log("%s", line)
	if r.Keep != nil {
		return r.Keep(rep)
	}
	return nil
}

func (rep *OpsReport) judge() {
	for _, res := range rep.Rows {
		res.Verdicts = nil
		for _, b := range res.Bars {
			res.Verdicts = append(res.Verdicts, b.Judge(res, func(name string) *OpsResult {
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

// wanted says whether an arm is asked for.
func wanted(name string, arms, without []string) bool {
	in := func(list []string) bool {
		return slices.ContainsFunc(list, func(f string) bool { return family(f, name) })
	}
	return (len(arms) == 0 || in(arms)) && !in(without)
}

// words says what was compared.
func (t *opsTruth) words() string {
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
