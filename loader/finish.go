package loader

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/loader/options"
)

// Finish describes the operations that a device must apply to raw batches of n samples. n is at
// most the batch size.
func (l *Loader) Finish(n int) (*Finish, error) {
	if !l.config.Raw {
		return nil, robocache.Misuse("loader", nil, "batches are finished: raw was not asked for")
	}
	if n < 0 || n > l.config.BatchSize {
		return nil, options.Misuse(
			"finish",
			fmt.Sprintf("0 … %d samples", l.config.BatchSize),
			fmt.Sprint(n),
		)
	}
	l.assemblerLock.RLock()
	defer l.assemblerLock.RUnlock()
	return plan.DescribeFinish(l.assembler.Schema, l.assembler.Sources[0], n), nil
}
