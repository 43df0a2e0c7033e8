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

// Resume describes one process of the resume check. The process logs the content of each batch, and
// may kill itself in the middle of the run.
type Resume struct {
	Steps int `json:"steps"` // steps of the whole run
	// The process kills itself after this step of the run, while batches are prefetched. 0 means
	// never.
	Kill int `json:"kill"`
	// path of the saved state: read at the start, written before the kill
	State string `json:"state"`
	Log   string `json:"log"` // path of the log, with one line per step for order and pixels
}

// savedState is the content of the state file.
type savedState struct {
	Step  int          `json:"step"`
	State loader.State `json:"state"`
}

// resumeSteps is the length of the compared runs.
const resumeSteps = 24

// ResumeRun runs one process of the resume check with the Go loader.
func ResumeRun(ctx context.Context, w Workload, _ io.Writer) (o Outcome, err error) {
	ds, err := w.openDataset(ctx)
	if err != nil {
		return o, err
	}
	defer ds.Close()
	ld, _, err := w.newLoader(ctx, ds)
	if err != nil {
		return o, err
	}
	defer ld.Close()
	j := w.Resume
	defer robocache.Locate(&err, robocache.Where{"file": j.State})
	var from savedState
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
	src, step := &engineSource{loader: ld}, from.Step
	_, err = src.takeUncounted(ctx, func(b *deliveredBatch) (bool, error) {
		if b != nil {
			if _, err := fmt.Fprintln(log, step, batchHash(src.batch)); err != nil {
				return false, err
			}
			step++
		}
		if b != nil && step == j.Kill {
			if err := report.WriteJSON(j.State, savedState{step, ld.State()}); err != nil {
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

// batchHash returns a hash of everything in a batch: order and pixels.
func batchHash(b *loader.Batch) string {
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

// resumeExact runs the first steps of a point twice. One run is uninterrupted. The other is killed
// at a random step and resumed with other threads and prefetch. resumeExact reports whether all
// batches were the same. It returns nil for runners other than engine.
func (s *Suite) resumeExact(ctx context.Context, p *measuredPoint) (*bool, error) {
	if p.runnerName != "engine" {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "robocache-bench-resume-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w := p.workload
	if srv, err := s.startServer(p, &w); err != nil {
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
		if err := w.runResumeProcess(ctx, &s.Tools); err != nil {
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
	if _, err := run(1+
		rand.New(rand.NewPCG(uint64(w.Seed), uint64(p.batchSize))).IntN(resumeSteps-1),
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

// runResumeProcess runs one process of the resume check. If the process must kill itself, any other
// end is an error.
func (w Workload) runResumeProcess(ctx context.Context, t *runners.Tools) error {
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
