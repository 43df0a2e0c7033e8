package ops

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// peer is a Python process that holds runners and is asked in turn; runners/ops.py says how they talk.
type peer struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs *bytes.Buffer
	mu   sync.Mutex
	gone error
}

// startPeers starts the peers' processes, several for a GPU; without an interpreter there are none.
func (s *session) startPeers(ctx context.Context) {
	if slices.Equal(s.r.Runners, []string{"none"}) {
		return
	}
	processes := 1
	if s.gpu != nil {
		processes = min(peerProcesses, len(s.r.Rows))
	}
	var wg sync.WaitGroup
	for range processes {
		var p *peer
		if err := guard.Try(func() { p = s.startPeer(ctx) }); err != nil {
			s.r.Log("%v: no peers", err)
			break
		}
		s.peers = append(s.peers, p)
		wg.Go(func() { // all at once: importing torch takes seconds
			if _, err := p.ask(map[string]any{"cmd": "hello", "device": s.r.Device, "clock": s.r.Clock}, s.r.Timeout); err != nil {
				s.r.Log("%v", err)
			}
		})
	}
	wg.Wait()
}

func (s *session) startPeer(ctx context.Context) *peer {
	n := strconv.Itoa(s.threads)
	p := &peer{}
	p.cmd, p.errs = runners.Command(ctx, s.r.Tools.Script("ops_peers.py"), append(s.r.Tools.Env(), "OMP_NUM_THREADS="+n, "MKL_NUM_THREADS="+n, "OPENBLAS_NUM_THREADS="+n,
		// The peers' results are new memory each call. Kept by malloc, it costs them no page faults: their best setting.
		"MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=4294967296", "PYTHONUNBUFFERED=1"))
	p.in, p.out = guard.Must(p.cmd.StdinPipe()), bufio.NewReaderSize(guard.Must(p.cmd.StdoutPipe()), 1<<20)
	guard.Check(robocache.At(p.cmd.Start(), robocache.Where{"program": s.r.Tools.Python}))
	return p
}

// closePeers lets the processes end by themselves, and ends those that do not.
func (s *session) closePeers() {
	for _, p := range s.peers {
		if p.gone == nil {
			p.in.Close()
			t := time.AfterFunc(3*time.Second, p.kill)
			_ = p.cmd.Wait()
			t.Stop()
		}
	}
}

func (p *peer) kill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

type peerAnswer struct {
	Error   string `json:"error"`
	Runners map[string]struct {
		Setting string `json:"setting"`
		Other   bool   `json:"other"` // it does other work: its values are not looked at
		Error   string `json:"error"`
	} `json:"runners"`
	Values   []any             `json:"values"`
	US       []float64         `json:"us"`
	Versions map[string]string `json:"versions"`
}

// ask sends a line and waits for the answer.
func (p *peer) ask(what map[string]any, timeout time.Duration) (ans peerAnswer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone != nil {
		return ans, p.gone
	}
	line, err := json.Marshal(what)
	if err != nil {
		return ans, err
	}
	// A peer that hangs is ended: its pipe closes, and the reading below comes back.
	timer := time.AfterFunc(timeout, p.kill)
	defer timer.Stop()
	_, err = p.in.Write(append(line, '\n'))
	var got []byte
	if err == nil {
		got, err = p.out.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(got, &ans)
	}
	if err != nil {
		p.kill()
		_ = p.cmd.Wait()
		p.gone = fmt.Errorf("the peers' process ended (%s): %w: %s", p.cmd.ProcessState, err, runners.LastLine(p.errs.String()))
		return ans, p.gone
	}
	if ans.Error != "" {
		err = fmt.Errorf("the peers: %s", ans.Error)
	}
	return ans, err
}

// peerRunner is one runner of a peer on one row.
type peerRunner struct {
	peer      *peer
	row, name string
	timeout   time.Duration
}

// check asks for some of the runner's values and holds them against the reference's.
func (a *peerRunner) check(w *Work, index []int, want []float64) {
	ans := guard.Must(a.peer.ask(map[string]any{"cmd": "probe", "name": a.row, "runner": a.name, "index": index}, a.timeout))
	if len(ans.Values) != len(want) {
		guard.Fail(fmt.Errorf("%d values, want %d", len(ans.Values), len(want)))
	}
	for i, v := range ans.Values {
		x, _ := strconv.ParseFloat(fmt.Sprint(v), 64) // NaN and infinity come as text
		// Relative to the data, which is of the order of 1, or to the value.
		if d := math.Abs(x - want[i]); !(d <= w.tolerance()*max(1, math.Abs(want[i]))) {
			guard.Fail(fmt.Errorf("wrong: element %d is %v, the reference has %v", index[i], v, want[i]))
		}
	}
}

func (a *peerRunner) time(seconds float64, cold bool) []float64 {
	return guard.Must(a.peer.ask(map[string]any{"cmd": "time", "name": a.row, "runner": a.name, "seconds": seconds, "cold": cold}, a.timeout)).US
}
