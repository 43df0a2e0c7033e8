package video

import (
	"container/list"
	"context"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// maxIdleOpen bounds the files that stay open with nobody using them: a dataset may have more files than a process may open.
const maxIdleOpen = 64

// defaultLibraryBudget holds the indexes of some four thousand episodes of five minutes.
const defaultLibraryBudget = 256 << 20

// Library holds the open files and the indexes of one dataset: least recently used first out, within a budget in bytes for
// the indexes and a bound on open files. Files in use are outside both.
type Library struct {
	open   Opener
	budget int64

	mu     sync.Mutex
	files  map[string]*File
	recent *list.List // of *File with no user, most recent first
	opened *list.List // those of recent with an open file: a list of its own, for recent may hold a hundred thousand closed ones
	bytes  int64      // of the indexes of recent
	closed bool
	wrap   func(path string, r robocache.Ranged) robocache.Ranged
	wraps  int // calls of Wrap
	stats  LibraryStats
}

// LibraryStats counts what a library did, and what it holds.
type LibraryStats struct {
	Files      int   // known, in use or idle
	OpenFiles  int   // idle ones that are still open
	IndexBytes int64 // of the idle ones
	Hits       int64 // Acquire found the index
	Reads      int64 // an index was read
	Evicted    int64
}

// File is an open video file with its index. It is the holder's from Acquire to Release.
type File struct {
	Path   string
	Index  *Index
	Ranged robocache.Ranged

	lib     *Library
	refs    int
	version string
	wraps   int           // Library.wraps when it was opened
	loading chan struct{} // closed when the load that is under way has ended
	place   *list.Element // in Library.recent
	opened  *list.Element // in Library.opened
}

// NewLibrary makes a library over the files that open gives. budget bounds the indexes of files that nobody uses; 0 means 256 MiB.
func NewLibrary(open Opener, budget int64) *Library {
	if budget <= 0 {
		budget = defaultLibraryBudget
	}
	return &Library{open: open, budget: budget, files: map[string]*File{}, recent: list.New(), opened: list.New()}
}

// Wrap puts a decorator (a cache of blocks, say) around each file opened from now on; nil takes it away. It must keep Size and Version,
// and its Close must close what it wraps. The file's index is read through it too. Idle files are opened anew when they are next asked
// for; those in use stay as they are until their last holder lets go.
func (l *Library) Wrap(wrap func(path string, r robocache.Ranged) robocache.Ranged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrap = wrap
	l.wraps++
}

// Remote says that reads of the file wait for a store, so that Fetch ahead of decoding pays.
func (f *File) Remote() bool {
	return robocache.IsRemote(f.Ranged)
}

// Acquire gives the file at path, opened and indexed. Callers that ask for one path at once share one load.
func (l *Library) Acquire(ctx context.Context, path string) (*File, error) {
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "open video", Where: robocache.Where{"file": path}, Msg: "the library is closed"}
		}
		f := l.files[path]
		if f == nil {
			f = &File{Path: path, lib: l}
			l.files[path] = f
		}
		if f.loading != nil {
			wait := f.loading
			l.mu.Unlock()
			select {
			case <-wait:
				continue // loaded, or failed under another's context: look again
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		l.unlist(f)
		if f.Ranged != nil && f.refs == 0 && f.wraps != l.wraps {
			_ = f.Ranged.Close()
			f.Ranged = nil
		}
		f.refs++
		if f.Ranged != nil {
			l.stats.Hits++
			l.mu.Unlock()
			return f, nil
		}
		f.loading = make(chan struct{})
		wrap, wraps := l.wrap, l.wraps
		l.mu.Unlock()

		r, ix, err := l.load(ctx, f, wrap)

		l.mu.Lock()
		close(f.loading)
		f.loading = nil
		if err == nil && l.closed {
			err = &robocache.Error{Class: robocache.ErrMisuse, Op: "open video", Msg: "the library is closed"}
			_ = r.Close()
		}
		if err != nil {
			f.refs = 0
			delete(l.files, path)
			l.mu.Unlock()
			return nil, robocache.At(err, robocache.Where{"file": path})
		}
		if f.Index == ix {
			l.stats.Hits++
		} else {
			l.stats.Reads++
		}
		f.Ranged, f.Index, f.version, f.wraps = r, ix, r.Version(), wraps
		l.mu.Unlock()
		return f, nil
	}
}

// load opens the file, and reads its index unless the one it has is of the same version.
func (l *Library) load(ctx context.Context, f *File, wrap func(path string, r robocache.Ranged) robocache.Ranged) (robocache.Ranged, *Index, error) {
	r, err := l.open(ctx, f.Path)
	if err != nil {
		return nil, nil, err
	}
	if wrap != nil {
		r = wrap(f.Path, r)
	}
	if f.Index != nil && f.version == r.Version() {
		return r, f.Index, nil
	}
	ix, err := ReadIndex(ctx, r, Limits{})
	if err != nil {
		_ = r.Close()
		return nil, nil, err
	}
	return r, ix, nil
}

// Release gives the file back. The file may be closed from then on.
func (f *File) Release() {
	l := f.lib
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.refs--; f.refs > 0 || f.Ranged == nil {
		return
	}
	if l.closed {
		_ = f.Ranged.Close()
		f.Ranged = nil
		return
	}
	f.place, f.opened = l.recent.PushFront(f), l.opened.PushFront(f)
	l.bytes += f.Index.MemoryBytes()
	for l.opened.Len() > maxIdleOpen {
		old := l.opened.Back().Value.(*File)
		l.opened.Remove(old.opened)
		_ = old.Ranged.Close()
		old.Ranged, old.opened = nil, nil
	}
	l.shrink()
}

// Limit lowers the budget.
func (l *Library) Limit(budget int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget = min(l.budget, budget)
	l.shrink()
}

// shrink forgets the least recently used files. l.mu is held.
func (l *Library) shrink() {
	for l.bytes > l.budget && l.recent.Len() > 0 {
		old := l.recent.Back().Value.(*File)
		l.unlist(old)
		if old.Ranged != nil {
			_ = old.Ranged.Close()
			old.Ranged = nil
		}
		delete(l.files, old.Path)
		l.stats.Evicted++
	}
}

// unlist takes a file out of the idle ones.
func (l *Library) unlist(f *File) {
	if f.place == nil {
		return
	}
	l.recent.Remove(f.place)
	if f.opened != nil {
		l.opened.Remove(f.opened)
	}
	f.place, f.opened = nil, nil
	l.bytes -= f.Index.MemoryBytes()
}

// Stats says what the library did, and what it holds.
func (l *Library) Stats() LibraryStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Files, s.OpenFiles, s.IndexBytes = len(l.files), l.opened.Len(), l.bytes
	return s
}

// Close closes the idle files, and each of the others when it is released.
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var first error
	for e := l.recent.Front(); e != nil; e = e.Next() {
		f := e.Value.(*File)
		f.place, f.opened = nil, nil
		if f.Ranged != nil {
			if err := f.Ranged.Close(); err != nil && first == nil {
				first = err
			}
			f.Ranged = nil
		}
	}
	l.recent.Init()
	l.opened.Init()
	l.bytes = 0
	l.files = map[string]*File{}
	return first
}
