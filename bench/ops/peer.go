package ops

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache/bench/runners"

	"github.com/goatnote-inc/robocache"
)

// opsPeer is a Python process that holds runners and is asked in turn; runners/ops_common.py says how they talk.
type peer struct {
	script string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errs   *tail
	mu     sync.Mutex
	gone   error
}

// peerRunner is one runner of a peer on one row.
type peerRunner struct {
	peer *peer
	row  string
	name string
}

// opsScripts are the scripts with runners for a device.
func peerScripts(dir, device string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(dir, "ops_*.py"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range all {
		name := filepath.Base(p)
		if name != "ops_common.py" && strings.Contains(name, "gpu") == (device == "cuda") {
			out = append(out, p)
		}
	}
	return out, nil
}

// startPeer starts a script with so many threads.
func startPeer(ctx context.Context, t *runners.Tools, script, device string, threads int) (*peer, error) {
	p := &peer{script: filepath.Base(script), errs: &tail{}}
	p.cmd = exec.CommandContext(ctx, t.Python, script)
	n := strconv.Itoa(max(threads, 1))
	p.cmd.Env = append(append(os.Environ(), t.Env()...), "OMP_NUM_THREADS="+n, "MKL_NUM_THREADS="+n, "OPENBLAS_NUM_THREADS="+n,
		// The peers' results are new memory each call. Kept by malloc, it costs them no page faults: their best setting.
		"MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=4294967296", "PYTHONUNBUFFERED=1")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
	p.cmd.WaitDelay = 5 * time.Second
	p.cmd.Stderr = p.errs
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReaderSize(out, 1<<20)
	if err := p.cmd.Start(); err != nil {
		return nil, robocache.At(err, robocache.Where{"program": t.Python})
	}
	return p, nil
}

// tail keeps the last of what a peer says on stderr.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 1<<16 {
		t.b = bytes.Clone(t.b[len(t.b)-1<<15:])
	}
	return len(p), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return runners.LastLine(string(t.b))
}

// opsAsk and opsAnswer are the lines of the protocol.
type peerAsk struct {
	Cmd     string               `json:"cmd"`
	Device  string               `json:"device,omitempty"`
	Threads int                  `json:"threads,omitempty"`
	Clock   string               `json:"clock,omitempty"`
	Row     *peerRow             `json:"row,omitempty"`
	Runners []string             `json:"arms,omitempty"`
	Without []string             `json:"without,omitempty"`
	Inputs  map[string]inputFile `json:"inputs,omitempty"`
	Name    string               `json:"name,omitempty"`
	Runner  string               `json:"arm,omitempty"`
	Index   []int                `json:"index,omitempty"`
	Seconds float64              `json:"seconds,omitempty"`
	Cold    bool                 `json:"cold,omitempty"`
}

type peerRow struct {
	Name string `json:"name"`
	Work
	Device  string `json:"device"`
	Threads int    `json:"threads"`
	Bytes   int64  `json:"bytes"`
	Copies  int    `json:"copies"`
}

type peerAnswer struct {
	Error    string                     `json:"error"`
	Runners  map[string]answerRunner    `json:"arms"`
	Shape    []int                      `json:"shape"`
	Values   []any                      `json:"values"`
	US       []float64                  `json:"us"`
	Versions map[string]string          `json:"versions"`
	Extra    map[string]json.RawMessage `json:"extra"`
}

type answerRunner struct {
	Setting string  `json:"setting"`
	SetupS  float64 `json:"setup_s"`
	Other   bool    `json:"other"`
	Error   string  `json:"error"`
	Skip    bool    `json:"skip"`
}

// ask sends a line and waits for the answer.
func (p *peer) ask(a peerAsk, timeout time.Duration) (peerAnswer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ans peerAnswer
	if p.gone != nil {
		return ans, p.gone
	}
	line, err := json.Marshal(a)
	if err != nil {
		return ans, err
	}
	// A peer that hangs is ended: its pipe closes, and the reading below comes back.
	timer := time.AfterFunc(timeout, func() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) })
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
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		_ = p.cmd.Wait()
		p.gone = fmt.Errorf("%s ended (%s): %w: %s", p.script, p.cmd.ProcessState, err, p.errs.last())
		return ans, p.gone
	}
	if ans.Error != "" {
		return ans, fmt.Errorf("%s: %s", p.script, ans.Error)
	}
	return ans, nil
}

// close lets the process end by itself, and ends it where it does not.
func (p *peer) close() {
	p.in.Close()
	done := make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(3 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
}

// check asks for some of the runner's values and holds them against the reference's.
func (a *peerRunner) check(w *Work, index []int, want []float64, timeout time.Duration) error {
	ans, err := a.peer.ask(peerAsk{Cmd: "probe", Name: a.row, Runner: a.name, Index: index}, timeout)
	if err != nil {
		return err
	}
	if len(ans.Values) != len(want) {
		return fmt.Errorf("%d values, want %d", len(ans.Values), len(want))
	}
	for i, v := range ans.Values {
		x, ok := v.(float64)
		if !ok {
			if s, text := v.(string); text {
				x, _ = strconv.ParseFloat(s, 64)
			}
		}
		// Relative to the data, which is of the order of 1, or to the value.
		if d := math.Abs(x - want[i]); !(d <= w.tolerance()*max(1, math.Abs(want[i]))) {
			return fmt.Errorf("wrong: element %d is %v, the reference has %v", index[i], v, want[i])
		}
	}
	return nil
}

func (a *peerRunner) time(seconds float64, cold bool, timeout time.Duration) ([]float64, error) {
	ans, err := a.peer.ask(peerAsk{Cmd: "time", Name: a.row, Runner: a.name, Seconds: seconds, Cold: cold}, timeout)
	return ans.US, err
}
