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
	"strings"
	"syscall"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// Resume is one process of the check that a killed run goes on exactly: it logs what each batch holds, and may be killed in the middle of it.
type Resume struct {
	Steps int    `json:"steps"` // of the whole run
	Kill  int    `json:"kill"`  // after so many steps of the run the process kills itself, with its prefetch in flight; 0: never
	State string `json:"state"` // file: where the run goes on from, and where its state is left before it is killed
	Log   string `json:"log"`   // file: a line a step, order and pixels
}

// saved is the state file.
type saved struct {
	Step  int          `json:"step"`
	State loader.State `json:"state"`
}

// resumeSteps is the length of the runs that are compared.
const resumeSteps = 24

// ResumeRun is the engine's process of the check.
func ResumeRun(ctx context.Context, w Workload, _ io.Writer) (o Outcome, err error) {
	j := w.Resume
	ds, err := w.open(ctx)
	if err != nil {
		return o, err
	}
	defer ds.Close()
	cfg, err := w.config(ds.Info())
	if err != nil {
		return o, err
	}
	ld, err := loader.New(ctx, ds, cfg)
	if err != nil {
		return o, err
	}
	defer ld.Close()
	var from saved
	if b, err := os.ReadFile(j.State); err == nil {
		if err := json.Unmarshal(b, &from); err != nil {
			return o, &robocache.Error{Class: robocache.ErrMalformed, Op: "bench load", Where: robocache.Where{"file": j.State}, Msg: "state", Err: err}
		}
		if err := ld.Restore(from.State, false); err != nil {
			return o, err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return o, robocache.At(err, robocache.Where{"file": j.State})
	}
	log, err := os.OpenFile(j.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return o, robocache.At(err, robocache.Where{"file": j.Log})
	}
	defer log.Close()
	for step := from.Step; step < j.Steps; step++ {
		b, err := nextBatch(ctx, ld)
		if err != nil {
			return o, err
		}
		sum := batchSum(b)
		b.Release()
		if _, err := fmt.Fprintln(log, step, sum); err != nil {
			return o, robocache.At(err, robocache.Where{"file": j.Log})
		}
		if step+1 == j.Kill {
			if err := report.WriteJSON(j.State, saved{step + 1, ld.State()}); err != nil {
				return o, err
			}
			return o, syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	return o, nil
}

// nextBatch is the next batch, past the end of an epoch.
func nextBatch(ctx context.Context, ld *loader.Loader) (*loader.Batch, error) {
	b, err := ld.Next(ctx)
	if errors.Is(err, io.EOF) {
		b, err = ld.Next(ctx)
	}
	return b, err
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
	program := map[string][]string{"engine": s.Tools.Own("resume"), "robocache": s.Tools.Script("load_robocache.py")}[p.runner]
	if program == nil {
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
	ctx, cancel := context.WithTimeout(ctx, 3*s.Timeout)
	defer cancel()
	run := func(w Workload, kill int, name string) (string, error) {
		w.Resume = &Resume{Steps: resumeSteps, Kill: kill, State: filepath.Join(dir, name+".state"), Log: filepath.Join(dir, name)}
		if err := w.finish(ctx, program, s.Tools.Env()); err != nil {
			return "", err
		}
		b, err := os.ReadFile(w.Resume.Log)
		return string(b), err
	}
	whole, err := run(w, 0, "unbroken")
	if err == nil {
		_, err = run(w, 1+rand.New(rand.NewPCG(uint64(w.Seed), uint64(p.batch))).IntN(resumeSteps-1), "broken")
	}
	if err != nil {
		return nil, err
	}
	w.Workers, w.Prefetch = w.Workers+1, max(w.Prefetch, 1)+1
	broken, err := run(w, 0, "broken")
	if err != nil {
		return nil, err
	}
	if n := strings.Count(whole, "\n"); n != resumeSteps {
		return nil, fmt.Errorf("the unbroken run logged %d steps of %d", n, resumeSteps)
	}
	same := whole == broken
	return &same, nil
}

// finish runs one process of the check; where it is to be killed, it must end by its own SIGKILL.
func (w Workload) finish(ctx context.Context, program, env []string) error {
	job, err := json.Marshal(w)
	if err != nil {
		return err
	}
	cmd, errs := runners.Command(ctx, append(slices.Clone(program), string(job)), env)
	err = cmd.Run()
	if w.Resume.Kill > 0 && cmd.ProcessState != nil { // nil: it did not start
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
