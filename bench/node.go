package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"

	"github.com/goatnote-inc/robocache"
)

// Node is this process's place where each rank of a scenario runs on a machine of its own (Slurm: RANK and WORLD_SIZE).
type Node struct {
	Rank, World int
	Dir         string // a folder that all nodes see, of this run alone
}

// nodeTurn is the folder of one run of one point.
func (n *Node) turn(p *point) (string, error) {
	dir := filepath.Join(n.Dir, fmt.Sprintf("%s_bs%d_%s_%d", p.scenario.Name, p.batch, p.runner, len(p.runs)))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", robocache.At(err, robocache.Where{"file": dir})
	}
	if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("outcome%d.json", n.Rank))); err == nil {
		return "", &robocache.Error{Class: robocache.ErrMisuse, Op: "bench load", Where: robocache.Where{"file": dir}, Msg: "a run of this rank was here before", Hint: "give each run an --out of its own"}
	}
	return dir, nil
}

// exchange leaves this rank's outcome for the others, and waits for theirs.
func (n *Node) exchange(ctx context.Context, dir string, own Outcome, failed error) ([]Outcome, error) {
	if failed != nil {
		own.Error = failed.Error()
	}
	name := func(r int) string { return filepath.Join(dir, fmt.Sprintf("outcome%d.json", r)) }
	b, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	// Named last: who sees it, sees all of it.
	part := name(n.Rank) + ".part"
	if err := report.WriteFile(part, b); err != nil {
		return nil, err
	}
	if err := os.Rename(part, name(n.Rank)); err != nil {
		return nil, robocache.At(err, robocache.Where{"file": part})
	}
	outs := make([]Outcome, n.World)
	for r := range n.World {
		b, err := await(ctx, name(r), 20*time.Millisecond, fmt.Sprintf("rank %d left no outcome", r))
		if err == nil {
			err = robocache.At(json.Unmarshal(b, &outs[r]), robocache.Where{"file": name(r)})
		}
		if err != nil {
			return nil, err
		}
		if outs[r].Error != "" {
			return outs, fmt.Errorf("rank %d: %s", r, outs[r].Error)
		}
	}
	return outs, nil
}

// meet waits until every rank has come to the barrier: a folder that all of them see. runners/common.py does the same.
func meet(ctx context.Context, w Workload) error {
	if w.Barrier == "" || w.World < 2 {
		return nil
	}
	name := func(rank int) string { return filepath.Join(w.Barrier, fmt.Sprintf("rank%d", rank)) }
	if err := report.WriteFile(name(w.Rank), nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for r := range w.World {
		if _, err := await(ctx, name(r), 2*time.Millisecond, fmt.Sprintf("rank %d did not come to the barrier", r)); err != nil {
			return err
		}
	}
	return nil
}

// await reads a file as soon as it is there.
func await(ctx context.Context, path string, each time.Duration, what string) ([]byte, error) {
	for {
		b, err := os.ReadFile(path)
		if !errors.Is(err, os.ErrNotExist) {
			return b, robocache.At(err, robocache.Where{"file": path})
		}
		select {
		case <-ctx.Done():
			return nil, &robocache.Error{Class: robocache.ErrTemporary, Op: "bench load", Msg: what, Err: ctx.Err()}
		case <-time.After(each):
		}
	}
}
