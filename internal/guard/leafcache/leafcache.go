// Package leafcache reads through a cache in leaf decoders, which raise errors with internal/guard.
package leafcache

import (
	"context"

	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/lru"
)

// Load returns the value of a key from c. On a miss it calls load, which may raise an error; Load
// raises the same error.
func Load[K comparable, V any](
	ctx context.Context,
	c *lru.Cache[K, V],
	key K,
	load func() (V, int64),
) V {
	if v, ok := c.Peek(key); ok {
		return v
	}
	return guard.Must(c.Get(ctx, key, func() (v V, n int64, err error) {
		err = guard.Try(func() { v, n = load() })
		return v, n, err
	}))
}
