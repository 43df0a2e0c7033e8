package video

import (
	"container/list"
	"context"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// maxIdleOpen limits the idle files that stay open. A dataset may have more files than a process
// may open.
const maxIdleOpen = 64

// defaultLibraryBudget fits the indexes of about 4,000 episodes of five minutes.
const defaultLibraryBudget = 256 << 20

// Library holds the open files and indexes of one dataset. A budget in bytes limits the indexes of
// idle files, and maxIdleOpen the open ones. The least recently used files are evicted first. Files
// in use do not count. Safe for concurrent use.
type Library struct {
	open   Opener
	budget int64

	mu    sync.Mutex
	files map[string]*File
	idle  *list.List // idle *File values, most recently used first
	// the last element of idle whose file is open; all before it are open, all after it are closed
	oldestOpen *list.Element
	openIdle   int   // number of idle files that are open
	idleBytes  int64 // bytes of the indexes of idle files
	closed     bool
	wrap       func(path string, r robocache.Ranged) robocache.Ranged
	wrapCalls  int // number of calls of Wrap
	stats      LibraryStats
}

// LibraryStats reports the work and the contents of a library.
type LibraryStats struct {
	Files      int   // known files, in use or idle
	OpenFiles  int   // idle files that are open
	IndexBytes int64 // index bytes of idle files
	Hits       int64 // calls of Acquire that found the index
	Reads      int64 // indexes that were read
	Evicted    int64
}

// File is an open video file with its index. The caller of Acquire may use it until Release.
type File struct {
	Path   string
	Index  *Index
	Ranged robocache.Ranged

	lib         *Library
	refs        int
	version     string
	wrapCalls   int           // Library.wrapCalls when the file was opened
	loading     chan struct{} // closed when the current load ends; nil if there is none
	idleElement *list.Element // element of Library.idle; nil if in use
}

// NewLibrary returns a library of the files that open opens. budget limits the indexes of idle
// files; 0 means 256 MiB. The caller must call Close.
func NewLibrary(open Opener, budget int64) *Library {
	orDefault(&budget, defaultLibraryBudget)
	return &Library{open: open, budget: budget, files: map[string]*File{}, idle: list.New()}
}

// Wrap sets a decorator, for example a block cache, for all files that are opened from now on. nil
// removes it. The decorator must keep Size and Version, and its Close must close the wrapped file.
// The index is also read through it. Idle files are reopened at their next use. Files in use are
// unchanged until their last Release.
func (l *Library) Wrap(wrap func(path string, r robocache.Ranged) robocache.Ranged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrap = wrap
	l.wrapCalls++
}

// Remote reports whether reads of the file wait for a remote store, so that Fetch before decoding
// is worthwhile.
func (f *File) Remote() bool {
	return robocache.IsRemote(f.Ranged)
}

// Acquire returns the file at path, opened and indexed. Concurrent calls for one path share one
// load. The caller must call Release.
func (l *Library) Acquire(ctx context.Context, path string) (*File, error) {
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil, robocache.Misuse(
				"open video",
				robocache.Where{"file": path},
				"the library is closed",
			)
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
				continue // loaded, or failed because of another caller's context: check again
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		l.removeIdle(f)
		if f.refs == 0 && f.wrapCalls != l.wrapCalls { // opened with another decorator
			_ = f.closeRanged()
		}
		f.refs++
		if f.Ranged != nil {
			l.stats.Hits++
			l.mu.Unlock()
			return f, nil
		}
		f.loading = make(chan struct{})
		wrap, wraps := l.wrap, l.wrapCalls
		l.mu.Unlock()

		r, ix, err := l.openIndexed(ctx, f, wrap)

		l.mu.Lock()
		close(f.loading)
		f.loading = nil
		if err == nil && l.closed {
			err = robocache.Misuse("open video", nil, "the library is closed")
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
		f.Ranged, f.Index, f.version, f.wrapCalls = r, ix, r.Version(), wraps
		l.mu.Unlock()
		return f, nil
	}
}

// openIndexed opens the file. It reads the index unless the known index has the same version.
func (l *Library) openIndexed(
	ctx context.Context,
	f *File,
	wrap func(path string, r robocache.Ranged) robocache.Ranged,
) (robocache.Ranged, *Index, error) {
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

// Release ends the caller's use of the file. The file may then be closed.
func (f *File) Release() {
	l := f.lib
	l.mu.Lock()
	defer l.mu.Unlock()
	f.refs--
	if f.refs > 0 || f.Ranged == nil {
		return
	}
	if l.closed {
		_ = f.closeRanged()
		return
	}
	f.idleElement = l.idle.PushFront(f)
	l.idleBytes += f.Index.MemoryBytes()
	l.openIdle++
	if l.oldestOpen == nil {
		l.oldestOpen = f.idleElement
	}
	for l.openIdle > maxIdleOpen { // these files stay idle, with their indexes
		old := l.oldestOpen.Value.(*File)
		l.oldestOpen, l.openIdle = l.oldestOpen.Prev(), l.openIdle-1
		_ = old.closeRanged()
	}
	l.evictOverBudget()
}

// Limit lowers the budget to at most budget bytes.
func (l *Library) Limit(budget int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget = min(l.budget, budget)
	l.evictOverBudget()
}

// evictOverBudget evicts the least recently used files. Caller must hold l.mu.
func (l *Library) evictOverBudget() {
	for l.idleBytes > l.budget && l.idle.Len() > 0 {
		old := l.idle.Back().Value.(*File)
		l.removeIdle(old)
		_ = old.closeRanged()
		delete(l.files, old.Path)
		l.stats.Evicted++
	}
}

// removeIdle removes a file from the idle list. Caller must hold l.mu.
func (l *Library) removeIdle(f *File) {
	if f.idleElement == nil {
		return
	}
	if l.oldestOpen == f.idleElement {
		l.oldestOpen = f.idleElement.Prev()
	}
	if f.Ranged != nil {
		l.openIdle--
	}
	l.idle.Remove(f.idleElement)
	f.idleElement = nil
	l.idleBytes -= f.Index.MemoryBytes()
}

// closeRanged closes an idle file. Its index stays.
func (f *File) closeRanged() error {
	if f.Ranged == nil {
		return nil
	}
	err := f.Ranged.Close()
	f.Ranged = nil
	return err
}

// Stats returns the work and the contents of the library.
func (l *Library) Stats() LibraryStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Files, s.OpenFiles, s.IndexBytes = len(l.files), l.openIdle, l.idleBytes
	return s
}

// Close closes the idle files. Each file in use is closed at its Release.
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var first error
	for e := l.idle.Front(); e != nil; e = e.Next() {
		f := e.Value.(*File)
		f.idleElement = nil
		if err := f.closeRanged(); first == nil {
			first = err
		}
	}
	l.idle.Init()
	l.oldestOpen, l.openIdle, l.idleBytes = nil, 0, 0
	l.files = map[string]*File{}
	return first
}
