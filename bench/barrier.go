package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goatnote-inc/robocache"
)

// meet waits until every rank has come to the barrier: a folder that all of them see. runners/common.py does the same.
func meet(ctx context.Context, w Workload) error {
	if w.Barrier == "" || w.World < 2 {
		return nil
	}
	name := func(rank int) string { return filepath.Join(w.Barrier, fmt.Sprintf("rank%d", rank)) }
	if err := os.WriteFile(name(w.Rank), nil, 0o644); err != nil {
		return robocache.At(err, robocache.Where{"file": w.Barrier})
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for r := range w.World {
		for {
			if _, err := os.Stat(name(r)); err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return &robocache.Error{Class: robocache.ErrTemporary, Op: "bench load", Msg: fmt.Sprintf("rank %d did not come to the barrier", r), Err: ctx.Err()}
			case <-time.After(2 * time.Millisecond):
			}
		}
	}
	return nil
}
