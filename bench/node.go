package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Node is this process's place where each rank of a scenario runs on a machine of its own (Slurm: RANK and WORLD_SIZE).
type Node struct {
	Rank, World int
	Dir         string // a folder that all nodes see, of this run alone
}

// turn is the folder of one run of one point.
func (n *Node) turn(p *point) string {
	dir := filepath.Join(n.Dir, fmt.Sprintf("%s_bs%d_%s_%d", p.scenario.Name, p.batch, p.runner, len(p.runs)))
	if exists(n.outcome(dir, n.Rank)) {
		guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "bench load", Where: robocache.Where{"file": dir}, Msg: "a run of this rank was here before", Hint: "give each run an --out of its own"})
	}
	guard.Check(os.MkdirAll(dir, 0o755))
	return dir
}

func (n *Node) outcome(dir string, rank int) string {
	return filepath.Join(dir, fmt.Sprintf("outcome%d.json", rank))
}

// exchange leaves this rank's outcome for the others, and waits for theirs.
func (n *Node) exchange(ctx context.Context, dir string, own Outcome, failed error) []Outcome {
	if failed != nil {
		own.Error = failed.Error()
	}
	// Named last: who sees it, sees all of it.
	part := n.outcome(dir, n.Rank) + ".part"
	guard.Check(report.WriteJSON(part, own))
	guard.Check(os.Rename(part, n.outcome(dir, n.Rank)))
	outs := make([]Outcome, n.World)
	for r := range outs {
		b := await(ctx, n.outcome(dir, r), 20*time.Millisecond, fmt.Sprintf("rank %d left no outcome", r))
		guard.Check(robocache.At(json.Unmarshal(b, &outs[r]), robocache.Where{"file": n.outcome(dir, r)}))
		if outs[r].Error != "" {
			guard.Fail(fmt.Errorf("rank %d: %s", r, outs[r].Error))
		}
	}
	return outs
}

// meet waits until every rank has come to the barrier: a folder that all of them see. runners/common.py does the same.
func meet(ctx context.Context, w *Workload) {
	if w.Barrier == "" || w.World < 2 {
		return
	}
	name := func(rank int) string { return filepath.Join(w.Barrier, fmt.Sprintf("rank%d", rank)) }
	guard.Check(report.WriteFile(name(w.Rank), nil))
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for r := range w.World {
		await(ctx, name(r), 2*time.Millisecond, fmt.Sprintf("rank %d did not come to the barrier", r))
	}
}

// await reads a file as soon as it is there.
func await(ctx context.Context, path string, each time.Duration, what string) []byte {
	for {
		b, err := os.ReadFile(path)
		if !errors.Is(err, os.ErrNotExist) {
			guard.Check(robocache.At(err, robocache.Where{"file": path}))
			return b
		}
		select {
		case <-ctx.Done():
			guard.Fail(&robocache.Error{Class: robocache.ErrTemporary, Op: "bench load", Msg: what, Err: ctx.Err()})
		case <-time.After(each):
		}
	}
}
