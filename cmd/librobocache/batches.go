package main

/*
#include <stdint.h>
*/
import "C"

import (
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/loader"
)

// loading is a loader.Loader behind a handle. Taking is for one caller at a time; what only looks needs no turn.
//
// A client that is interrupted may never see a batch that it was given. So the last one is remembered until the client says that it
// arrived (C9): before that it is given again, and State stands before it. Nothing is lost or counted that the user has not had.
type loading struct {
	next   sync.Mutex // held while a batch is taken
	mu     sync.Mutex // guards what follows
	l      *loader.Loader
	raw    bool // its batches are raw
	closed bool
	data   []*shared // its datasets, kept open
	last   lastBatch
	ended  *int64         // the epoch whose end was told last
	texts  textWriter     // next's
	host   *cudahost.Host // where batches are page-locked
	// Where the loader stood before each of the last batches, by their numbers: a client that keeps some on their way to a device asks
	// for the state before the first of them.
	seq    int64
	before [8]loader.State
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
	l.mu.Lock()
	l.last.takeBack()
	l.mu.Unlock()
	if l.host != nil {
		l.host.Close()
	}
	if rerr := releaseAll(l.data); err == nil {
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
	Notes   []string       `json:"notes,omitempty"`
	norms
}

// norms says what normalising does, and the normalisation that makes the same loader again, a source each.
type norms struct {
	Normalizers []loader.Normalizer `json:"normalizers"`
	Settled     []loader.Normalize  `json:"settled"`
}

// robocache_loader_new makes a loader of the dataset of the handle, or with "sources" in the configuration of several.
//
//export robocache_loader_new
func robocache_loader_new(dataset C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	w, err := parseWish(in)
	if err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		l, err := w.open(ctx, int64(dataset))
		if err != nil {
			return result{}, err
		}
		return made(l, func(h int64) any {
			return loaderReply{h, l.l.Len(), l.l.Samples(), l.l.Fields(), l.l.Notes(), norms{l.l.Normalizers(), l.l.Settled()}}
		}), nil
	})
}

// robocache_loader_state says where the loader stands; with {"before": seq}, where it stood before a batch.
//
//export robocache_loader_state
func robocache_loader_state(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a struct {
		Before int64 `json:"before"`
	}
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return with(handle, timeoutMS, ticket, out, func(_ context, l *loading) (result, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		n := a.Before
		if n == 0 && l.last.awaited() {
			n = l.seq
		}
		switch {
		case n == 0:
			return result{value: l.l.State()}, nil
		case n < 0 || n > l.seq || n <= l.seq-int64(len(l.before)):
			return result{}, misuse("state", "the state before so early a batch is not kept")
		}
		s := l.before[n%int64(len(l.before))]
		s.Sources = slices.Clone(s.Sources)
		l.l.Identify(&s)
		return result{value: s}, nil
	})
}

// move sends the loader elsewhere. A batch that was told and did not arrive is taken back.
func (l *loading) move(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last.takeBack()
	l.ended = nil
	return f()
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
		return result{}, l.move(func() error { return l.l.Restore(a.State, a.Force) })
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
		return result{}, l.move(func() error { return l.l.SetEpoch(a.Epoch) })
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
		Rank  *int  `json:"rank"`  // what one rank gives; nil: all
	}
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return with(handle, timeoutMS, ticket, out, func(_ context, l *loading) (result, error) {
		if a.Rank != nil {
			own, err := l.l.RankOrder(a.Epoch, *a.Rank)
			if err != nil {
				return result{}, err
			}
			var ans answer
			b, err := ans.add("order", robocache.Int64, []int{len(own)})
			if err != nil {
				return result{}, err
			}
			copy(int64s(b), own)
			return ans.result(), nil
		}
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
