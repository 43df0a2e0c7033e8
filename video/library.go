package video

import (
	"container/list"
	"context"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// maxIdleOpen bounds the files that stay open with nobody using them: a dataset may have more files
// than a process may open.
const maxIdleOpen = 64

// defaultLibraryBudget holds the indexes of some four thousand episodes of five minutes.
const defaultLibraryBudget = 256 << 20

// Library holds the open files and the indexes of one dataset: least recently used first out,
// within a budget in bytes for the indexes and a bound on open files. Files in use are outside
// both.
type Library struct {
	open   Opener
	budget int64

	mu     sync.Mutex
	files  map[string]*File
	recent *list.List // of *File with no user, most recent first
	// of recent, the last whose file is open: those before it are open too, those behind it closed
	oldest *list.Element
	opened int   // how many are open
	bytes  int64 // of the indexes of recent
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
}

// NewLibrary makes a library over the files that open gives. budget bounds the indexes of files
// that nobody uses; 0 means 256 MiB.
func NewLibrary(open Opener, budget int64) *Library {
	orDefault(&budget, defaultLibraryBudget)
	return &Library{open: open, budget: budget, files: map[string]*File{}, recent: list.New()}
}

// Wrap puts a decorator (a cache of blocks, say) around each file opened from now on; nil takes it
// away. It must keep Size and Version, and its Close must close what it wraps. The file's index is
// read through it too. Idle files are opened anew when they are next asked for; those in use stay
// as they are until their last holder lets go.
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

// Acquire gives the file at path, opened and indexed. Callers that ask for one path at once share
// one load.
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
				continue // loaded, or failed under another's context: look again
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		l.unlist(f)
		if f.refs == 0 && f.wraps != l.wraps {
			_ = f.close()
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
		f.Ranged, f.Index, f.version, f.wraps = r, ix, r.Version(), wraps
		l.mu.Unlock()
		return f, nil
	}
}

// load opens the file, and reads its index unless the one it has is of the same version.
func (l *Library) load(
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

// Release gives the file back. The file may be closed from then on.
func (f *File) Release() {
	l := f.lib
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.refs--; f.refs > 0 || f.Ranged == nil {
		return
	}
	if l.closed {
		_ = f.close()
		return
	}
	f.place = l.recent.PushFront(f)
	l.bytes += f.Index.MemoryBytes()
	l.opened++
	if l.oldest == nil {
		l.oldest = f.place
	}
	for l.opened > maxIdleOpen {
		old := l.oldest.Value.(*File)
		l.oldest, l.opened = l.oldest.Prev(), l.opened-1
		_ = old.close()
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
		_ = old.close()
		delete(l.files, old.Path)
		l.stats.Evicted++
	}
}

// unlist takes a file out of the idle ones.
func (l *Library) unlist(f *File) {
	if f.place == nil {
		return
	}
	if l.oldest == f.place {
		l.oldest = f.place.Prev()
	}
	if f.Ranged != nil {
		l.opened--
	}
	l.recent.Remove(f.place)
	f.place = nil
	l.bytes -= f.Index.MemoryBytes()
}

// close closes an idle file; its index stays.
func (f *File) close() error {
	if f.Ranged == nil {
		return nil
	}
	err := f.Ranged.Close()
	f.Ranged = nil
	return err
}

// Stats says what the library did, and what it holds.
func (l *Library) Stats() LibraryStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Files, s.OpenFiles, s.IndexBytes = len(l.files), l.opened, l.bytes
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
		f.place = nil
		if err := f.close(); first == nil {
			first = err
		}
	}
	l.recent.Init()
	l.oldest, l.opened, l.bytes = nil, 0, 0
	l.files = map[string]*File{}
	return first
}
