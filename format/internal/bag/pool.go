package bag

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/handles"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Recording is one recording of a dataset. It is opened when it is needed.
type Recording struct {
	Name string // file name relative to the dataset, for errors
	Open func(ctx context.Context) (Storage, error)
	// Size and Version identify the content of the recording's files. Version is "" if they are not
	// known. The recording is then not taken from an index.
	Size    int64
	Version string
}

// recordingPool keeps recordings open, limited by file descriptors and by the memory of their
// indexes. It closes the least recently used ones.
type recordingPool struct {
	recs           []Recording
	open           *handles.Pool[int, *openRecording]
	opening        []sync.Mutex // held while a recording is opened, so that others wait
	reportFindings func(s Storage)
	closed         atomic.Bool
	// indexed holds the heads of recordings that are taken from an index, by recording. It is nil
	// without an index.
	indexed []*recordingHead
}

// openRecording is an open recording.
type openRecording struct {
	Storage
	countedBytes   atomic.Int64 // size that the pool last counted
	reportFindings func(s Storage)
}

// Close reports the findings of the storage before it closes it.
func (o *openRecording) Close() error {
	o.reportFindings(o.Storage)
	return o.Storage.Close()
}

var errClosed = robocache.Misuse("read", nil, "the dataset is closed")

// newPool returns a pool of at most limit open recordings, whose indexes take at most budget bytes.
// It calls reportFindings with each recording before it closes it.
func newPool(
	recs []Recording, limit int, budget int64, reportFindings func(Storage),
) *recordingPool {
	return &recordingPool{
		recs:           recs,
		open:           handles.New[int, *openRecording](limit, budget),
		opening:        make([]sync.Mutex, len(recs)),
		reportFindings: reportFindings,
	}
}

// withStorage runs fn with an open recording. Afterwards it counts the memory by which the indexes
// grew.
func (p *recordingPool) withStorage(ctx context.Context, rec int, fn func(Storage) error) error {
	if p.closed.Load() {
		return errClosed
	}
	h, err := p.openHandle(ctx, rec)
	if err != nil {
		return err
	}
	defer func() {
		now := h.Value.Held()
		p.open.Grow(h, now-h.Value.countedBytes.Swap(now))
		p.open.Put(h)
	}()
	return fn(h.Value.Storage)
}

// useStorage runs fn with an open recording. It fails the call if the recording cannot be opened.
func (d *Dataset) useStorage(ctx context.Context, rec int, fn func(Storage)) {
	guard.Check(d.pool.withStorage(ctx, rec, func(s Storage) error { fn(s); return nil }))
}

// openHandle returns a handle of a recording, and opens the recording if necessary. The caller must
// return the handle with p.open.Put.
func (p *recordingPool) openHandle(
	ctx context.Context,
	rec int,
) (*handles.Handle[int, *openRecording], error) {
	p.opening[rec].Lock()
	defer p.opening[rec].Unlock()
	return p.open.Get(rec, func() (*openRecording, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := p.recs[rec].Open(ctx)
		if err == nil && p.indexed != nil && p.indexed[rec] != nil {
			if err = p.indexed[rec].checkStorage(s, p.recs[rec].Name); err != nil {
				s.Close()
			}
		}
		return &openRecording{Storage: s, reportFindings: p.reportFindings}, err
	})
}

// forEachOpen runs fn with every recording that is open. It opens none.
func (p *recordingPool) forEachOpen(fn func(s Storage)) {
	for rec := range p.recs {
		if h := p.open.Peek(rec); h != nil {
			fn(h.Value.Storage)
			p.open.Put(h)
		}
	}
}

// close closes unused recordings. A recording in use is closed when it is released.
func (p *recordingPool) close() error {
	p.closed.Store(true)
	return p.open.Close()
}
