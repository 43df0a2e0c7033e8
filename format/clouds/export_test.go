package clouds

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// OpenStore opens the folder at the root of a store. Close of the dataset closes the store.
func OpenStore(
	ctx context.Context,
	s store.Store,
	format string,
	opt robocache.OpenOptions,
) (*Dataset, error) {
	return openStore(ctx, s, format, opt, "")
}
