package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"

	"github.com/goatnote-inc/robocache"
)

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
