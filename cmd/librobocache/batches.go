package main

/*
#include <stdint.h>
*/
import "C"

import (
	"errors"
	"io"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// loading is a loader.Loader behind a handle. Next is for one caller at a time; what only looks needs no turn.
//
// A client that is interrupted may never see a batch that Next gave. So batches are numbered, each call says which one came last,
// and a batch that did not arrive is given again; State stands before it. Nothing is lost or counted that the user has not had.
type loading struct {
	next   sync.Mutex // held by Next
	mu     sync.Mutex // guards what follows
	l      *loader.Loader
	closed bool
	data   *shared
	seq    int64        // of the last batch
	last   *batchReply  // the last batch, as it was told
	before loader.State // where the loader stood before it
	orphan bool         // nobody was told of it
}

// close ends the loader first, which makes a waiting Next return, and so gives the turn.
func (l *loading) close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	err := l.l.Close()
	l.next.Lock()
	defer l.next.Unlock()
	l.forget()
	if rerr := l.data.release(); err == nil {
		err = rerr
	}
	return err
}

func loaderOf(handle C.int64_t) (*loading, error) {
	l, err := lookup[*loading](int64(handle), "loader")
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, misuse("loader", "the loader is closed")
	}
	return l, nil
}

// with runs f on the loader of a handle.
func with(handle C.int64_t, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char, f func(ctx context, l *loading) (result, error)) C.int32_t {
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		l, err := loaderOf(handle)
		if err != nil {
			return result{}, err
		}
		return f(ctx, l)
	})
}

type loaderReply struct {
	Loader  int64          `json:"loader"`
	Len     int64          `json:"len"`
	Samples int64          `json:"samples"`
	Fields  []loader.Field `json:"fields"`
}

//export robocache_loader_new
func robocache_loader_new(dataset C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	cfg, err := configuration(in)
	if err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		return holding(dataset, "loader", func(s *shared) (result, error) {
			l, err := loader.New(ctx, s.Dataset, cfg)
			if err != nil {
				return result{}, err
			}
			return made(&loading{l: l, data: s.retain()}, func(h int64) any { return loaderReply{h, l.Len(), l.Samples(), l.Fields()} }), nil
		})
	})
}

type nextArgs struct {
	After int64 `json:"after"` // number of the last batch that arrived; 0 before the first
}

type nextReply struct {
	Seq int64 `json:"seq"`
	*batchReply
}

//export robocache_loader_next
func robocache_loader_next(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a nextArgs
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return with(handle, timeoutMS, ticket, out, func(ctx context, l *loading) (result, error) {
		l.next.Lock()
		defer l.next.Unlock()
		if !l.lost(a.After) {
			before := l.l.State()
			b, err := l.l.Next(ctx)
			switch {
			case errors.Is(err, io.EOF):
				return result{end: true}, nil
			case err != nil:
				return result{}, err
			}
			var ans answer
			ans.batch(b)
			reply, _ := ans.result().value.(batchReply)
			l.mu.Lock()
			l.seq, l.last, l.before = l.seq+1, &reply, before
			l.mu.Unlock()
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.orphan = false
		return result{value: nextReply{l.seq, l.last}, undo: func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.orphan = true
		}}, nil
	})
}

// lost says that the last batch did not arrive.
func (l *loading) lost(after int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last != nil && after < l.seq
}

// forget drops a batch that did not arrive: the loader goes elsewhere.
func (l *loading) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.orphan {
		if o := handles.remove(l.last.Batch); o != nil {
			_ = o.close()
		}
	}
	l.last, l.orphan = nil, false
}

//export robocache_loader_state
func robocache_loader_state(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a nextArgs
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return with(handle, timeoutMS, ticket, out, func(_ context, l *loading) (result, error) {
		if l.lost(a.After) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return result{value: l.before}, nil
		}
		return result{value: l.l.State()}, nil
	})
}

//export robocache_loader_restore
func robocache_loader_restore(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a struct {
		State loader.State `json:"state"`
		Force bool         `json:"force"`
	}
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return with(handle, timeoutMS, ticket, out, func(_ context, l *loading) (result, error) {
		l.forget()
		return result{}, l.l.Restore(a.State, a.Force)
	})
}

//export robocache_loader_set_epoch
func robocache_loader_set_epoch(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a struct {
		Epoch int64 `json:"epoch"`
	}
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return with(handle, timeoutMS, ticket, out, func(_ context, l *loading) (result, error) {
		l.forget()
		return result{}, l.l.SetEpoch(a.Epoch)
	})
}

// robocache_loader_order gives the order of an epoch as int64, or a part of it.
//
//export robocache_loader_order
func robocache_loader_order(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a struct {
		Epoch int64 `json:"epoch"`
		From  int64 `json:"from"`
		Count int64 `json:"count"` // 0 = to the end
	}
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return with(handle, timeoutMS, ticket, out, func(_ context, l *loading) (result, error) {
		o := l.l.Order(a.Epoch)
		from := min(max(a.From, 0), o.Len())
		n := o.Len() - from
		if a.Count > 0 {
			n = min(n, a.Count)
		}
		var ans answer
		b, err := ans.add("order", robocache.Int64, []int{int(n)})
		if err != nil {
			return result{}, err
		}
		o.Fill(int64s(b)[:n], from)
		return ans.result(), nil
	})
}

//export robocache_loader_stats
func robocache_loader_stats(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	return with(handle, timeoutMS, ticket, out, func(_ context, l *loading) (result, error) {
		return result{value: struct {
			loader.Stats
			Epoch int64 `json:"epoch"`
		}{l.l.Stats(), l.l.Epoch()}}, nil
	})
}
