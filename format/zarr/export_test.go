package zarr

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// OpenStore opens the dataset at the root of a store. Close of the dataset closes the store.
func OpenStore(ctx context.Context, s store.Store, opt robocache.OpenOptions) (*Dataset, error) {
	return openStores(ctx, s, nil, opt)
}
