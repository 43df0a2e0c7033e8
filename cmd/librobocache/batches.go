//go:build cgo

package main

import (
	"slices"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/metrics"
)

// loaderHandle is a loader.Loader behind a handle. Only one caller at a time takes batches. Other
// calls do not wait for it.
//
// An interrupted client may never see the batch that it was given. Therefore the last batch is kept
// until the client acknowledges it (librobocache.C9). Until then it is delivered again, and state
// returns the state before it. No batch is lost, and none is counted that the user has not
// received.
type loaderHandle struct {
	next          sync.Mutex // held while a batch is taken
	mu            sync.Mutex // guards the fields below
	loader        *loader.Loader
	isRaw         bool // whether batches are raw
	closed        bool
	datasets      []*sharedDataset // datasets, kept open
	last          lastBatch
	endedEpoch    *int64          // epoch whose end was reported last
	texts         textWriter      // guarded by next
	pinnedHost    *cudahost.Host  // page-locks the memory of batches
	metricsServer *metrics.Server // nil if there are no metrics
	// before holds the state before each of the last batches, by sequence number. A client that
	// still moves some batches to a device asks for the state before the first of them.
	seq    int64
	before [8]loader.State
}

// close closes the loader first. A waiting Next then returns and releases l.next.
func (l *loaderHandle) close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	_ = l.metricsServer.Close()
	err := l.loader.Close()
	l.next.Lock()
	defer l.next.Unlock()
	l.mu.Lock()
	l.last.takeBack()
	l.mu.Unlock()
	if l.pinnedHost != nil {
		l.pinnedHost.Close()
	}
	if rerr := releaseAll(l.datasets); err == nil {
		err = rerr
	}
	return err
}

// acquire reports whether the loader is open. It does not keep the loader open: close does not wait
// for calls that use it.
func (l *loaderHandle) acquire() bool {
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
	Metrics string         `json:"metrics,omitempty"` // address of the metrics
	normalization
}

// normalization describes how values are normalized. Settled holds the options that create the same
// loader again, one per source.
type normalization struct {
	Normalizers []loader.Normalizer `json:"normalizers"`
	Settled     []loader.Normalize  `json:"settled"`
}

// newLoader returns the call that creates a loader. The loader reads the dataset of the handle, or
// the "sources" of the configuration.
func newLoader(dataset int64, in []byte) (work, error) {
	r, err := parseRequest(in)
	if err != nil {
		return nil, err
	}
	return func(ctx context) (any, error) {
		l, err := r.openLoader(ctx, dataset)
		if err != nil {
			return nil, err
		}
		addr := ""
		if r.metrics != "" {
			served, err := metrics.Serve(r.metrics, metrics.Loader(l.loader.Stats))
			if err != nil {
				_ = l.close()
				return nil, err
			}
			l.metricsServer, addr = served, served.Addr()
		}
		return newHandle(l, func(h int64) any {
			return loaderReply{
				h,
				l.loader.Len(),
				l.loader.Samples(),
				l.loader.Fields(),
				l.loader.Notes(),
				addr,
				normalization{l.loader.Normalizers(), l.loader.Settled()},
			}
		}), nil
	}, nil
}

// readState returns the state of the loader. With {"before": seq} it returns the state before that
// batch.
func (l *loaderHandle) readState(_ context, a *struct {
	Before int64 `json:"before"`
},
) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := a.Before
	if n == 0 && l.last.isUnacknowledged() {
		n = l.seq
	}
	switch {
	case n == 0:
		return l.loader.State(), nil
	case n < 0 || n > l.seq || n <= l.seq-int64(len(l.before)):
		return nil, misuse("state", "the state before so early a batch is not kept")
	}
	s := l.before[n%int64(len(l.before))]
	s.Sources = slices.Clone(s.Sources)
	l.loader.Identify(&s)
	return s, nil
}

// moveLoader calls f, which moves the loader to another position. A batch that was not acknowledged
// is taken back.
func (l *loaderHandle) moveLoader(f func() error) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last.takeBack()
	l.endedEpoch = nil
	if err := f(); err != nil {
		return nil, err
	}
	return nil, nil
}

type restoreArgs struct {
	State loader.State `json:"state"`
	Force bool         `json:"force"`
}

// restoreState moves the loader to a state. It returns the normalization, because that of a loader
// that follows a dataset is part of the state.
func (l *loaderHandle) restoreState(_ context, a *restoreArgs) (any, error) {
	err := error(nil)
	if _, err = l.moveLoader(
		func() error { return l.loader.Restore(a.State, a.Force) },
	); err != nil {
		return nil, err
	}
	if a.State.Follow == nil {
		return nil, nil
	}
	return normalization{l.loader.Normalizers(), l.loader.Settled()}, nil
}

type epochArgs struct {
	Epoch int64 `json:"epoch"`
}

func (l *loaderHandle) setEpoch(_ context, a *epochArgs) (any, error) {
	return l.moveLoader(func() error { return l.loader.SetEpoch(a.Epoch) })
}

type orderArgs struct {
	epochArgs
	From  int64 `json:"from"`
	Count int64 `json:"count"` // 0: to the end
	Rank  *int  `json:"rank"`  // only the samples of this rank; nil: all
}

// epochOrder returns the order of an epoch, or a part of it, as int64.
func (l *loaderHandle) epochOrder(_ context, a *orderArgs) (any, error) {
	return buildAnswer(func(ans *answer) error {
		if a.Rank != nil {
			own, err := l.loader.RankOrder(a.Epoch, *a.Rank)
			if err != nil {
				return err
			}
			ints, err := ans.addInts("order", len(own))
			if err != nil {
				return err
			}
			copy(ints, own)
			return nil
		}
		o := l.loader.Order(a.Epoch)
		from := min(max(a.From, 0), o.Len())
		n := o.Len() - from
		if a.Count > 0 {
			n = min(n, a.Count)
		}
		ints, err := ans.addInts("order", int(n))
		if err != nil {
			return err
		}
		o.Fill(ints, from)
		return nil
	})
}

// locateSamples returns the locations of samples as int64 arrays: dataset_index, episode (its index) and
// row.
func (l *loaderHandle) locateSamples(_ context, a *struct {
	Samples []int64 `json:"samples"`
},
) (any, error) {
	return buildAnswer(func(ans *answer) error {
		n := len(a.Samples)
		index, err := ans.addInts("dataset_index", n)
		if err != nil {
			return err
		}
		episode, err := ans.addInts("episode", n)
		if err != nil {
			return err
		}
		row, err := ans.addInts("row", n)
		if err != nil {
			return err
		}
		err = l.loader.Locate(a.Samples, func(i, source int, r robocache.Row) {
			index[i], episode[i], row[i] = int64(source), int64(r.Episode), int64(r.Index)
		})
		if err == nil {
			l.loader.EpisodeIndices(index, episode)
		}
		return err
	})
}

func (l *loaderHandle) readStats(context, *noArguments) (any, error) {
	return struct {
		loader.Stats
		Epoch   int64 `json:"epoch"`
		Len     int64 `json:"len"`
		Samples int64 `json:"epoch_samples"`
	}{l.loader.Stats(), l.loader.Epoch(), l.loader.Len(), l.loader.Samples()}, nil
}

// readCausality reports which samples the streams of a batch use.
func (l *loaderHandle) readCausality(ctx context, a *struct {
	TimeBudget float64 `json:"time_budget_s"`
},
) (any, error) {
	return l.loader.Causality(ctx, time.Duration(a.TimeBudget*1e9))
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
	Images  int64           `json:"images"` // another op, for augmented cameras; 0: none
	Drawn   []loader.Place  `json:"drawn"`  // of its tensors
	Fields  []finishField   `json:"fields"` // fields that are not text
	Outputs []loader.Output `json:"outputs"`
}

type finishField struct {
	loader.Place
	Key   string          `json:"key"`
	DType robocache.DType `json:"dtype"`
	Shape []int           `json:"shape"` // includes the batch axis
	Bytes int             `json:"bytes"`
}

// prepareFinish prepares the operations that complete raw batches of a number of rows. The caller must
// close the returned handles.
func (l *loaderHandle) prepareFinish(_ context, a *finishArgs) (any, error) {
	if a.Rows < 0 {
		return nil, misuse("finish", "rows below 0")
	}
	f, err := l.loader.Finish(a.Rows)
	if err != nil {
		return nil, err
	}
	r := finishReply{Buffers: f.Buffers, Places: f.Places, Drawn: f.Drawn, Outputs: f.Outputs}
	at := f.Fields
	for _, x := range l.loader.Fields() {
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
		of func(f *loader.Finish) kernel.Op // nil: there is no operation
	}{
		{&r.Op, func(f *loader.Finish) kernel.Op { return nilableOp(f.Op) }},
		{&r.Images, func(f *loader.Finish) kernel.Op { return nilableOp(f.Images) }},
	} {
		if one.of(f) == nil {
			continue
		}
		build := func() (_ *operation, err error) { // each operation has its own tensors
			finish, err := l.loader.Finish(a.Rows)
			if err != nil {
				return nil, err
			}
			o := one.of(finish)
			return &operation{op: o, tensors: o.Tensors()}, nil
		}
		op, err := prepareOp(build, a.Backend, a.Device)
		if err != nil {
			undo()
			return nil, err
		}
		*one.to = op.Op
	}
	return revocable{r, undo}, nil
}

// nilableOp returns op as an interface, which is nil if op is nil.
func nilableOp[T any, P interface {
	*T
	kernel.Op
}](op P) kernel.Op {
	if op == nil {
		return nil
	}
	return op
}
