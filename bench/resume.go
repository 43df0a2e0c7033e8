package bench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/loader"
)

// Resume is one process of the check that a killed run goes on exactly: it logs what each batch
// holds, and may be killed in the middle of it.
type Resume struct {
	Steps int `json:"steps"` // of the whole run
	// after so many steps of the run the process kills itself, with its prefetch in flight; 0:
	// never
	Kill int `json:"kill"`
	// file: where the run goes on from, and where its state is left before it is killed
	State string `json:"state"`
	Log   string `json:"log"` // file: a line a step, order and pixels
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
	ds, err := w.open(ctx)
	if err != nil {
		return o, err
	}
	defer ds.Close()
	ld, _, err := w.loader(ctx, ds)
	if err != nil {
		return o, err
	}
	defer ld.Close()
	j := w.Resume
	defer robocache.Locate(&err, robocache.Where{"file": j.State})
	var from saved
	if b, err := os.ReadFile(j.State); !errors.Is(err, os.ErrNotExist) {
		if err != nil {
			return o, err
		}
		if err := json.Unmarshal(b, &from); err != nil {
			return o, robocache.Malformed("load", nil, "state").WithCause(err)
		}
		if err := ld.Restore(from.State, false); err != nil {
			return o, err
		}
	}
	log, err := os.OpenFile(j.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return o, err
	}
	defer log.Close()
	src, step := &engineSource{ld: ld}, from.Step
	_, err = src.take(ctx, func(b *taken) (bool, error) {
		if b != nil {
			if _, err := fmt.Fprintln(log, step, batchSum(src.batch)); err != nil {
				return false, err
			}
			step++
		}
		if b != nil && step == j.Kill {
			if err := report.WriteJSON(j.State, saved{step, ld.State()}); err != nil {
				return false, err
			}
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				return false, err
			}
		}
		return step >= j.Steps, nil
	})
	return o, err
}

// batchSum is a hash over everything that a batch holds: order and pixels.
func batchSum(b *loader.Batch) string {
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, b.Indices)
	for i := range b.Tensors {
		fmt.Fprintf(h, "%s%s", b.Tensors[i].Key, b.Tensors[i].Data)
	}
	for i := range b.Texts {
		fmt.Fprintf(h, "%q", b.Texts[i].Values)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// resumeExact runs the first steps of a point's order once unbroken, and once killed at a random
// step and resumed with other threads and prefetch, and says whether every batch was the same. nil:
// of other runners than the engine, which all of ours are.
func (s *Suite) resumeExact(ctx context.Context, p *point) (*bool, error) {
	if p.runner != "engine" {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "robocache-bench-resume-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w := p.work
	if srv, err := s.serve(p, &w); err != nil {
		return nil, err
	} else if srv != nil {
		defer srv.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, 3*s.Timeout)
	defer cancel()
	run := func(kill int, name string) (string, error) {
		w.Resume = &Resume{
			Steps: resumeSteps,
			Kill:  kill,
			State: filepath.Join(dir, name+".state"),
			Log:   filepath.Join(dir, name),
		}
		if err := w.finish(ctx, &s.Tools); err != nil {
			return "", err
		}
		content, err := os.ReadFile(w.Resume.Log)
		if err != nil {
			return "", err
		}
		return string(content), nil
	}
	whole, err := run(0, "unbroken")
	if err != nil {
		return nil, err
	}
	if _, err := run(1+rand.New(rand.NewPCG(uint64(w.Seed), uint64(p.batch))).IntN(resumeSteps-1),
		"broken"); err != nil {
		return nil, err
	}
	w.Workers, w.Prefetch = w.Workers+1, max(w.Prefetch, 1)+1
	result, err := run(0, "broken")
	if err != nil {
		return nil, err
	}
	same := result == whole
	if n := strings.Count(whole, "\n"); n != resumeSteps {
		return nil, fmt.Errorf("the unbroken run logged %d steps of %d", n, resumeSteps)
	}
	return &same, nil
}

// finish runs one process of the check; where it is to be killed, it must end by its own SIGKILL.
func (w Workload) finish(ctx context.Context, t *runners.Tools) error {
	job, err := json.Marshal(w)
	if err != nil {
		return err
	}
	_, err = runners.Output(ctx, append(t.Own("resume"), string(job)), t.Env())
	if w.Resume.Kill > 0 && ctx.Err() == nil {
		var ended *exec.ExitError
		if errors.As(err, &ended) && ended.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			return nil
		}
		return fmt.Errorf("the process that was to be killed ended otherwise: %w", err)
	}
	return err
}
