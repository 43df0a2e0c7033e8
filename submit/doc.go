// Package submit runs the shards of a manifest: as processes of this machine, as an array job of
// Slurm, as an Indexed Job of Kubernetes.
//
// It knows a shard by the command line alone: `robocache run --manifest M --shard I` and its exit
// code, `status --json`, `commit`. What is done is what receipts say, so a shard may be started
// twice, anywhere, by any engine, and nothing is lost or doubled.
//
// Contract
//
//	S1  The exit code of run decides: 0 and 3 are done; 2, 10, 11, 12, 42 and 70 are final, no retry helps; anything else, and a signal, is retried.
//	S2  A shard is tried 1 + Retries times. Between its tries there is a pause that doubles, with full jitter; other shards use the place meanwhile.
//	S3  After a final shard nothing new is started and what runs is asked to stop, unless a partial commit is wanted.
//	S4  The end of the caller's context is passed on as SIGTERM; a process that does not end within Grace is killed.
//	S5  Schedulers take every code but 0 for a failure: scripts map 3 to 0. The receipts keep the count, and status and commit give 3.
//	S6  Names, paths and addresses reach scripts and YAML quoted; the scripts hold no credentials.
package submit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/shard"
)

// Final are the exit codes of run that no retry changes (S1).
var Final = []int{2, 10, 11, 12, 42, 70}

// Plan is what an engine needs to know of a manifest.
type Plan struct {
	// robocache, as the workers call it: a path, or "python -m robocache" in words
	Program  []string
	Manifest string // its path or URI, as the workers see it
	Total    int
	Missing  []int  // shards without a receipt, ascending
	ID       string // its name in logs
}

// Look asks `status` what there is to do; its exit code says whether all is done, which is no
// failure.
func Look(ctx context.Context, program []string, manifest string) (*Plan, error) {
	var errs bytes.Buffer
	c := command(ctx, program, "status", "--manifest", manifest, "--json")
	c.Stderr = &errs
	out, err := c.Output()
	var s struct {
		Run     string         `json:"run"`
		Total   int            `json:"total"`
		Missing shard.Episodes `json:"missing"`
	}
	if c.ProcessState == nil {
		return nil, robocache.Misuse("submit", robocache.Where{"option": "--program"}, "").
			WithCause(err)
	}
	if err != nil && !json.Valid(out) {
		return nil, &Failed{
			Verb: "status",
			Code: codeOf(c),
			Last: lastLine(errs.String()),
			Err:  err,
		}
	}
	if err := json.Unmarshal(out, &s); err != nil || s.Total < 1 {
		return nil, robocache.Malformed("submit", robocache.Where{"manifest": manifest}, "status --json gave no number of shards").
			WithCause(err)
	}
	return &Plan{program, manifest, s.Total, s.Missing, s.Run}, nil
}

// Failed is a verb that ended with an exit code that is no success.
type Failed struct {
	Verb  string // status, run or commit
	Shard int    // of run
	Code  int    // -1: a signal, or it was not started
	Tries int    // of run
	Last  string // the last line that it wrote to stderr
	Err   error
}

func (f *Failed) Error() string {
	what := f.Verb
	if f.Verb == "run" {
		what = fmt.Sprintf("shard %d, try %d", f.Shard, f.Tries)
	}
	if f.Code < 0 {
		return fmt.Sprintf("submit: %s: %v: %s", what, f.Err, f.Last)
	}
	return fmt.Sprintf("submit: %s: exit code %d: %s", what, f.Code, f.Last)
}

func (f *Failed) Unwrap() error { return f.Err }

// ExitCode is the code that the caller ends with: that of the verb.
func (f *Failed) ExitCode() int {
	if f.Code < 0 {
		return 75
	}
	return f.Code
}

// command calls the program; the end of ctx is a SIGTERM (S4).
func command(ctx context.Context, program []string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program[0], append(slices.Clone(program[1:]), args...)...)
	c.Cancel = func() error { return c.Process.Signal(terminate) }
	c.WaitDelay = Grace
	return c
}

// codeOf is the exit code of a process that was run: -1 where a signal ended it, or where it did
// not start.
func codeOf(c *exec.Cmd) int {
	if c.ProcessState == nil {
		return -1
	}
	return c.ProcessState.ExitCode()
}

// lastLine returns the program's last message, or the last line if the text has no message.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, line := range slices.Backward(lines) {
		if message, found := strings.CutPrefix(line, "robocache:"); found {
			return strings.TrimSpace(message)
		}
	}
	return strings.TrimSpace(lines[len(lines)-1])
}

// Ranges writes ascending numbers as Slurm takes them: 0-3,7.
func Ranges(n []int) string {
	text, _ := shard.Episodes(n).MarshalText()
	return string(text)
}

// Itself is this program as a child calls it: in a wheel it is a module of Python.
func Itself() ([]string, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"option": "--program"})
	}
	if base := filepath.Base(path); strings.HasPrefix(base, "python") {
		// the link in an environment, which knows its packages
		if called, err := exec.LookPath(os.Args[0]); err == nil {
			path, _ = filepath.Abs(called)
		}
		return []string{path, "-m", "robocache"}, nil
	}
	return []string{path}, nil
}
