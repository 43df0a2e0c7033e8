//go:build cgo

package main

import (
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/metrics"
)

// loaderHandle is a loader.Loader behind a handle. Taking is for one caller at a time; what only
// looks needs no turn.
//
// A client that is interrupted may never see a batch that it was given. So the last one is
// remembered until the client says that it arrived (C9): before that it is given again, and State
// stands before it. Nothing is lost or counted that the user has not had.
type loaderHandle struct {
	next   sync.Mutex // held while a batch is taken
	mu     sync.Mutex // guards what follows
	l      *loader.Loader
	raw    bool // its batches are raw
	closed bool
	data   []*shared // its datasets, kept open
	last   lastBatch
	ended  *int64          // the epoch whose end was told last
	texts  textWriter      // next's
	host   *cudahost.Host  // where batches are page-locked
	served *metrics.Server // nil: none
	// Where the loader stood before each of the last batches, by their numbers: a client that keeps
	// some on their way to a device asks for the state before the first of them.
	seq    int64
	before [8]loader.State
}

// close ends the loader first, which makes a waiting Next return, and so gives the turn.
func (l *loaderHandle) close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	_ = l.served.Close()
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

// hold says whether it may be used; closing it does not wait for who does.
func (l *loaderHandle) hold() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed
}

func (l *loaderHandle) release() error { return nil }

type loaderReply struct {
	Loader  int64          `json:"loader"`
	Len     int64          `json:"len"`
	Samples int64          `json:"samples"`
	Fields  []loader.Field `json:"fields"`
	Notes   []string       `json:"notes,omitempty"`
	Metrics string         `json:"metrics,omitempty"` // where they are served
	norms
}

// norms says what normalising does, and the normalisation that makes the same loader again, a
// source each.
type norms struct {
	Normalizers []loader.Normalizer `json:"normalizers"`
	Settled     []loader.Normalize  `json:"settled"`
}

// newLoader makes a loader of the dataset of the handle, or with "sources" in the configuration of
// several.
func newLoader(dataset int64, in []byte) (work, error) {
	r, err := parseRequest(in)
	if err != nil {
		return nil, err
	}
	return func(ctx context) (any, error) {
		l, err := r.open(ctx, dataset)
		if err != nil {
			return nil, err
		}
		addr := ""
		if r.metrics != "" {
			served, err := metrics.Serve(r.metrics, metrics.Loader(l.l.Stats))
			if err != nil {
				_ = l.close()
				return nil, err
			}
			l.served, addr = served, served.Addr()
		}
		return keep(l, func(h int64) any {
			return loaderReply{
				h,
				l.l.Len(),
				l.l.Samples(),
				l.l.Fields(),
				l.l.Notes(),
				addr,
				norms{l.l.Normalizers(), l.l.Settled()},
			}
		}), nil
	}, nil
}

// state says where the loader stands; with {"before": seq}, where it stood before a batch.
func (l *loaderHandle) state(_ context, a *struct {
	Before int64 `json:"before"`
},
) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := a.Before
	if n == 0 && l.last.awaited() {
		n = l.seq
	}
	switch {
	case n == 0:
		return l.l.State(), nil
	case n < 0 || n > l.seq || n <= l.seq-int64(len(l.before)):
		return nil, misuse("state", "the state before so early a batch is not kept")
	}
	s := l.before[n%int64(len(l.before))]
	s.Sources = slices.Clone(s.Sources)
	l.l.Identify(&s)
	return s, nil
}

// move sends the loader elsewhere. A batch that was told and did not arrive is taken back.
func (l *loaderHandle) move(f func() error) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last.takeBack()
	l.ended = nil
	if err := f(); err != nil {
		return nil, err
	}
	return nil, nil
}

type restoreArgs struct {
	State loader.State `json:"state"`
	Force bool         `json:"force"`
}

func (l *loaderHandle) restore(_ context, a *restoreArgs) (any, error) {
	return l.move(func() error { return l.l.Restore(a.State, a.Force) })
}

type epochArgs struct {
	Epoch int64 `json:"epoch"`
}

func (l *loaderHandle) setEpoch(_ context, a *epochArgs) (any, error) {
	return l.move(func() error { return l.l.SetEpoch(a.Epoch) })
}

type orderArgs struct {
	epochArgs
	From  int64 `json:"from"`
	Count int64 `json:"count"` // 0 = to the end
	Rank  *int  `json:"rank"`  // what one rank gives; nil: all
}

// order gives the order of an epoch as int64, or a part of it.
func (l *loaderHandle) order(_ context, a *orderArgs) (any, error) {
	return answers(func(ans *answer) error {
		if a.Rank != nil {
			own, err := l.l.RankOrder(a.Epoch, *a.Rank)
			if err != nil {
				return err
			}
			ints, err := ans.ints("order", len(own))
			if err != nil {
				return err
			}
			copy(ints, own)
			return nil
		}
		o := l.l.Order(a.Epoch)
		from := min(max(a.From, 0), o.Len())
		n := o.Len() - from
		if a.Count > 0 {
			n = min(n, a.Count)
		}
		ints, err := ans.ints("order", int(n))
		if err != nil {
			return err
		}
		o.Fill(ints, from)
		return nil
	})
}

// locate returns the places of samples as int64 arrays: dataset_index, episode (its index), row.
func (l *loaderHandle) locate(_ context, a *struct {
	Samples []int64 `json:"samples"`
},
) (any, error) {
	return answers(func(ans *answer) error {
		n := len(a.Samples)
		index, err := ans.ints("dataset_index", n)
		if err != nil {
			return err
		}
		episode, err := ans.ints("episode", n)
		if err != nil {
			return err
		}
		row, err := ans.ints("row", n)
		if err != nil {
			return err
		}
		return l.l.Locate(a.Samples, func(i, source int, r robocache.Row) {
			index[i], episode[i], row[i] = int64(
				source,
			), l.data[source].Info().
				EpisodeIndex(r.Episode),
				int64(
					r.Index,
				)
		})
	})
}

func (l *loaderHandle) stats(context, *none) (any, error) {
	return struct {
		loader.Stats
		Epoch int64 `json:"epoch"`
	}{l.l.Stats(), l.l.Epoch()}, nil
}

type finishArgs struct {
	Rows    int    `json:"rows"`
	Backend string `json:"backend"`
	Device  int    `json:"device"`
}

type finishReply struct {
	Op      int64           `json:"op"` // 0: nothing is left to do
	Buffers []int           `json:"buffers"`
	Places  []loader.Place  `json:"places"` // of the op's tensors, in the order of their addresses
	Images  int64           `json:"images"` // another op, of augmented cameras; 0: none
	Drawn   []loader.Place  `json:"drawn"`  // of its tensors
	Fields  []finishField   `json:"fields"` // those that are not texts
	Outputs []loader.Output `json:"outputs"`
}

type finishField struct {
	loader.Place
	Key   string          `json:"key"`
	DType robocache.DType `json:"dtype"`
	Shape []int           `json:"shape"` // with the batch axis
	Bytes int             `json:"bytes"`
}

// finish prepares what is left to do of raw batches of so many rows, as ops whose handles the
// caller closes.
func (l *loaderHandle) finish(_ context, a *finishArgs) (any, error) {
	if a.Rows < 0 {
		return nil, misuse("finish", "rows below 0")
	}
	f, err := l.l.Finish(a.Rows)
	if err != nil {
		return nil, err
	}
	r := finishReply{Buffers: f.Buffers, Places: f.Places, Drawn: f.Drawn, Outputs: f.Outputs}
	at := f.Fields
	for _, x := range l.l.Fields() {
		if x.Text() {
			continue
		}
		n := a.Rows * x.DType.Size()
		for _, d := range x.Shape {
			n *= d
		}
		r.Fields = append(
			r.Fields,
			finishField{at[0], x.Key, x.DType, append([]int{a.Rows}, x.Shape...), n},
		)
		at = at[1:]
	}
	undo := func() {
		handles.remove(r.Op)
		handles.remove(r.Images)
	}
	for _, one := range []struct {
		to *int64
		of func(f *loader.Finish) kernel.Op // nil: there is none
	}{
		{&r.Op, func(f *loader.Finish) kernel.Op { return opOf(f.Op) }}, {&r.Images, func(f *loader.Finish) kernel.Op { return opOf(f.Images) }},
	} {
		if one.of(f) == nil {
			continue
		}
		build := func() (_ *operation, err error) { // each has tensors of its own
			finishValue, err := l.l.Finish(a.Rows)
			if err != nil {
				return nil, err
			}
			o := one.of(finishValue)
			return &operation{op: o, tensors: o.Tensors()}, nil
		}
		op, err := prepare(build, a.Backend, a.Device)
		if err != nil {
			undo()
			return nil, err
		}
		*one.to = op.Op
	}
	return made{r, undo}, nil
}

// opOf is an operation that may not be there.
func opOf[T any, P interface {
	*T
	kernel.Op
}](op P) kernel.Op {
	if op == nil {
		return nil
	}
	return op
}
