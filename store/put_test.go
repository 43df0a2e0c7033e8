package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// careless ignores the condition of CreateNew, as some object stores do.
type careless struct{ *storetest.Mem }

func (c careless) CreateNew(ctx context.Context, name string) (store.Writer, error) {
	return c.Create(ctx, name)
}

func TestProbe(t *testing.T) {
	m := storetest.NewMem(t.Name())
	t.Cleanup(m.Drop)
	if err := store.Probe(t.Context(), careless{m}); !errors.Is(err, robocache.ErrUnsupported) {
		t.Errorf("a store that ignores the condition: %v", err)
	}
	if err := store.Probe(t.Context(), m); err != nil {
		t.Error(err)
	}
	if list, err := m.List(t.Context(), ""); err != nil || len(list) != 0 {
		t.Errorf("left %v, %v", list, err)
	}
}
