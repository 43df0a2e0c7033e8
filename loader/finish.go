package loader

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
)

// Finish describes what is left to do of raw batches of n samples, at most a whole batch.
func (l *Loader) Finish(n int) (*plan.Finish, error) {
	if !l.cfg.Raw {
		return nil, robocache.Misuse("loader", nil, "batches are finished: raw was not asked for")
	}
	if n < 0 || n > l.cfg.BatchSize {
		return nil, options.Misuse("finish", fmt.Sprintf("0 … %d samples", l.cfg.BatchSize), fmt.Sprint(n))
	}
	return plan.DescribeFinish(l.a.Schema, l.a.Sources[0], n), nil
}
