package bench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/goatnote-inc/robocache/bench/runners"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// ResumeJob is a stretch of a run that logs what each batch holds, and may be killed in the middle of it.
type ResumeJob struct {
	Work  Workload
	Steps int    // of the whole run
	Kill  int    // after so many steps of the run the process kills itself, with its prefetch in flight; 0: never
	State string // file: where the run goes on from, and where its state is left before it is killed
	Log   string // file: a line a step, order and pixels
}

// saved is the state file.
type saved struct {
	Step  int          `json:"step"`
	State loader.State `json:"state"`
}

// resumeSteps is the length of the runs that are compared.
const resumeSteps = 24

// ResumeRun is one process of the check that a killed run goes on exactly: the engine's.
func ResumeRun(ctx context.Context, j ResumeJob) error {
	ds, err := j.Work.open(ctx)
	if err != nil {
		return err
	}
	defer ds.Close()
	cfg, err := j.Work.config(ds.Info())
	if err != nil {
		return err
	}
	ld, err := loader.New(ctx, ds, cfg)
	if err != nil {
		return err
	}
	defer ld.Close()
	var from saved
	if b, err := os.ReadFile(j.State); err == nil {
		if err := json.Unmarshal(b, &from); err != nil {
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "bench load", Where: robocache.Where{"file": j.State}, Msg: "state", Err: err}
		}
		if err := ld.Restore(from.State, false); err != nil {
			return err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return robocache.At(err, robocache.Where{"file": j.State})
	}
	log, err := os.OpenFile(j.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return robocache.At(err, robocache.Where{"file": j.Log})
	}
	defer log.Close()
	for step := from.Step; step < j.Steps; step++ {
		b, err := ld.Next(ctx)
		if errors.Is(err, io.EOF) {
			b, err = ld.Next(ctx)
		}
		if err != nil {
			return err
		}
		sum := batchSum(b)
		b.Release()
		if _, err := fmt.Fprintln(log, step, sum); err != nil {
			return robocache.At(err, robocache.Where{"file": j.Log})
		}
		if step+1 == j.Kill {
			text, err := json.Marshal(saved{step + 1, ld.State()})
			if err != nil {
				return err
			}
			if err := os.WriteFile(j.State, text, 0o644); err != nil {
				return robocache.At(err, robocache.Where{"file": j.State})
			}
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	return nil
}

// batchSum is a hash over everything that a batch holds: order and pixels.
func batchSum(b *loader.Batch) string {
	h := sha256.New()
	var n [8]byte
	for _, i := range b.Indices {
		binary.LittleEndian.PutUint64(n[:], uint64(i))
		h.Write(n[:])
	}
	for i := range b.Tensors {
		h.Write([]byte(b.Tensors[i].Key))
		h.Write(b.Tensors[i].Data)
	}
	for i := range b.Texts {
		for _, t := range b.Texts[i].Values {
			binary.LittleEndian.PutUint64(n[:], uint64(len(t)))
			h.Write(n[:])
			io.WriteString(h, t)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// resumeExact runs the first steps of a point's order once unbroken, and once killed at a random step and resumed with other threads
// and prefetch, and says whether every batch was the same. nil where the runner has no state.
func (s *Suite) resumeExact(ctx context.Context, p *point) (*bool, error) {
	var program []string
	switch p.runner {
	case "engine":
		program = s.Tools.Own("resume")
	case "robocache":
		program = s.Tools.Script("load_robocache.py")
	default:
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "robocache-bench-resume-")
	if err != nil {
		return nil, robocache.At(err, nil)
	}
	defer os.RemoveAll(dir)
	w := p.work
	w.URI = s.URI
	if p.scenario.Store != "" && s.folder() != "" {
		srv, err := s.Links[p.scenario.Store].serve(s.folder())
		if err != nil {
			return nil, err
		}
		defer srv.Close()
		w.URI = srv.URL
	}
	kill := 1 + rand.New(rand.NewPCG(uint64(w.Seed), uint64(p.batch))).IntN(resumeSteps-1)
	run := func(w Workload, kill int, name string) (string, error) {
		log := filepath.Join(dir, name)
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		argv := append(slices.Clone(program), w.args()...)
		argv = append(argv, "--resume-steps", strconv.Itoa(resumeSteps), "--resume-kill", strconv.Itoa(kill), "--resume-state", filepath.Join(dir, name+".state"), "--resume-log", log)
		return log, finish(ctx, argv, s.Tools.Env(), kill > 0)
	}
	whole, err := run(w, 0, "unbroken")
	if err != nil {
		return nil, err
	}
	if _, err := run(w, kill, "broken"); err != nil {
		return nil, err
	}
	other := w
	other.Workers, other.Prefetch = w.Workers+1, max(w.Prefetch, 1)+1
	broken, err := run(other, 0, "broken")
	if err != nil {
		return nil, err
	}
	a, err := os.ReadFile(whole)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(broken)
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(a), "\n"); n != resumeSteps {
		return nil, fmt.Errorf("the unbroken run logged %d steps of %d", n, resumeSteps)
	}
	same := string(a) == string(b)
	return &same, nil
}

// finish runs one process of the check; killed says that it must end by its own SIGKILL.
func finish(ctx context.Context, argv, env []string, killed bool) error {
	cmd, errs := runners.Command(ctx, argv, env)
	err := cmd.Run()
	if killed && cmd.ProcessState != nil { // nil: it did not start
		if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() && st.Signal() == syscall.SIGKILL && ctx.Err() == nil {
			return nil
		}
		return fmt.Errorf("the process that was to be killed ended otherwise: %v: %s", err, runners.LastLine(errs.String()))
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, runners.LastLine(errs.String()))
	}
	return nil
}
