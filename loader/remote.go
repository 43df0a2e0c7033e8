package loader

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// remote is how work is shared out where reading takes time: more workers than cores, a token for each core, and a bound on the
// bytes that are read ahead.
type remote struct {
	cores chan struct{}
	bytes *semaphore.Weighted
}

// defaultReads is how many reads are in flight where nothing is said: at 5 ms a request, some six thousand a second.
const defaultReads = 32

func newRemote(threads int, bytes int64) *remote {
	return &remote{cores: make(chan struct{}, threads), bytes: semaphore.NewWeighted(bytes)}
}

// core takes a core; the function that it gives hands it back.
func (r *remote) core() func() {
	if r == nil {
		return func() {}
	}
	r.cores <- struct{}{}
	return func() { <-r.cores }
}

// fetch reads the packets of groups of a file that is far away, and takes a core for decoding them. ok is false where the run has ended.
func (w *worker) fetch(r reel, groups []video.Group) (b *video.Fetched, done func(), ok bool) {
	m := w.a.remote
	if m == nil || !r.remote() {
		return nil, m.core(), true
	}
	var need int64
	for _, g := range groups {
		need += r.fetchBytes(g)
	}
	if !m.bytes.TryAcquire(need) {
		// What is fetched may wait in the queue for this very worker: nobody waits for its bytes.
		need = 0
	}
	begin := time.Now()
	b, err := r.fetch(w.ctx(), groups)
	w.a.n.fetch.Add(int64(time.Since(begin)))
	if err != nil {
		m.bytes.Release(need)
		return nil, nil, false
	}
	back := m.core()
	return b, func() {
		back()
		if b != nil {
			b.Release()
		}
		m.bytes.Release(need)
	}, true
}

// fetched is packets of several groups, read together, until the last of them is decoded.
type fetched struct {
	m    *remote
	b    *video.Fetched
	need int64
	refs atomic.Int32
}

func (f *fetched) unref() {
	if f != nil && f.refs.Add(-1) == 0 {
		if f.b != nil {
			f.b.Release()
		}
		f.m.bytes.Release(f.need)
	}
}

// A run is groups of one file that are fetched together: near ones are one read, and the others are read at once.
const (
	runGroups = 16
	runBytes  = 4 << 20
)

// fetchRun reads the packets of a run, and makes jobs of its groups. Where too much is read ahead already, they are read one by one.
func (w *worker) fetchRun(t *fileTask, jobs []job) {
	m := w.a.remote
	groups := make([]video.Group, len(jobs))
	f := &fetched{m: m}
	for i := range jobs {
		groups[i] = jobs[i].group
		f.need += t.reel.fetchBytes(groups[i])
	}
	if m.bytes.TryAcquire(f.need) {
		begin := time.Now()
		b, err := t.reel.fetch(w.ctx(), groups)
		w.a.n.fetch.Add(int64(time.Since(begin)))
		if err != nil {
			m.bytes.Release(f.need)
		} else {
			f.b = b
			f.refs.Store(int32(len(jobs)))
			for i := range jobs {
				jobs[i].fetched = f
			}
		}
	}
	for _, j := range jobs {
		w.q.push(j)
	}
}

// isRemote says whether the video files of a source are far away: the first that can be opened speaks for all.
func (src *source) isRemote(ctx context.Context) bool {
	if src.reels == nil {
		return false
	}
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		if c.source != fromVideo {
			continue
		}
		for place := range min(src.table.Len(), probes) {
			ref := make([]robocache.FrameRef, 1)
			if err := src.ds.Frames(ctx, c.key, []robocache.Row{{Episode: src.table.Episode(place)}}, ref); err != nil || ref[0].Path == "" {
				continue
			}
			if r, err := src.reels.open(ctx, ref[0].Path); err == nil {
				defer r.release()
				return r.remote()
			}
		}
	}
	return false
}
