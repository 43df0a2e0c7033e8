package store

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
)

// tempPrefix begins the name of every unfinished file, in the folder of the file that it will
// become. List leaves them out.
const tempPrefix = ".robocache-tmp-"

func makeFolder(dir string) error {
	if strings.IndexByte(dir, 0) >= 0 {
		return robocache.Malformed(
			"create",
			robocache.Where{"dataset": show(dir)},
			"NUL in the path",
		)
	}
	return fail("create", dir, "", os.MkdirAll(dir, 0o777))
}

// tempFile is what a writer needs of an *os.File; tests put a full disk in its place.
type tempFile interface {
	io.Writer
	io.WriterAt
	Sync() error
	Close() error
}

// Create begins a file that replaces name, whole, at Commit.
func (l *Local) Create(ctx context.Context, name string) (Writer, error) {
	return l.create(ctx, name, false)
}

// CreateNew is Create, but Commit fails with ErrExists where the name is taken by then: of several
// writers one wins.
func (l *Local) CreateNew(ctx context.Context, name string) (Writer, error) {
	return l.create(ctx, name, true)
}

func (l *Local) create(ctx context.Context, name string, onlyNew bool) (_ Writer, err error) {
	if name, err = clean(ctx, l.uri, "create", name); err != nil {
		return nil, err
	}
	full := l.at(name)
	if info, err := l.root.Lstat(full); err == nil && info.IsDir() {
		return nil, l.notRegular("create", name, info.Mode())
	}
	dir := path.Dir(full)
	toSync := l.missing(dir)
	if err := fail("create", l.uri, name, l.root.MkdirAll(dir, 0o777)); err != nil {
		return nil, err
	}
	temp := path.Join(dir, tempPrefix+rand.Text())
	f, err := l.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err := fail("create", l.uri, name, err); err != nil {
		return nil, err
	}
	return &localWriter{
		l:       l,
		f:       f,
		name:    name,
		full:    full,
		temp:    temp,
		toSync:  append(toSync, dir),
		onlyNew: onlyNew,
		ctx:     ctx,
	}, nil
}

// missing lists the folders that get a new entry when dir is made: without their fsync a crash
// could lose the way to the file.
func (l *Local) missing(dir string) []string {
	var out []string
	for dir != "." {
		if _, err := l.root.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dir = path.Dir(dir)
		out = append(out, dir)
	}
	return out
}

// localWriter collects one file in a temporary one beside it.
type localWriter struct {
	l          *Local
	ctx        context.Context // of Create: its end stops further writes
	name       string
	full, temp string
	toSync     []string
	onlyNew    bool

	mu  sync.RWMutex // writers share it; Commit and Abort have it alone
	f   tempFile     // nil when ended
	err error        // why it ended, nil after Commit
}

func (w *localWriter) Write(p []byte) (int, error) {
	return w.write(func(f tempFile) (int, error) { return f.Write(p) })
}

func (w *localWriter) WriteAt(p []byte, off int64) (int, error) {
	return w.write(func(f tempFile) (int, error) { return f.WriteAt(p, off) })
}

func (w *localWriter) write(do func(tempFile) (int, error)) (int, error) {
	w.mu.RLock()
	f := w.f
	if f == nil {
		defer w.mu.RUnlock()
		return 0, w.ended("write")
	}
	err := w.ctx.Err()
	n := 0
	if err == nil {
		n, err = do(f)
	}
	w.mu.RUnlock()
	if err != nil {
		// At once, not at Abort: on a full disk the space is wanted back.
		return n, w.giveUp("write", err)
	}
	return n, nil
}

// ended is the error of a call after the end: the reason it ended for, or misuse. The caller holds
// mu.
func (w *localWriter) ended(op string) error {
	if w.err != nil {
		return w.err
	}
	return closed(op, w.l.uri, w.name)
}

// giveUp drops the temporary file and keeps err as the reason for later calls.
func (w *localWriter) giveUp(op string, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.f == nil {
		return w.ended(op)
	}
	w.f.Close()
	w.f = nil
	w.l.root.Remove(w.temp)
	w.err = fail(op, w.l.uri, w.name, err)
	return w.err
}

// Abort drops what was written. After Commit it does nothing.
func (w *localWriter) Abort() {
	w.giveUp("abort", robocache.Misuse("", nil, "used after Abort"))
}

// Commit makes the bytes durable, then gives them their name, then makes the name durable.
func (w *localWriter) Commit() error {
	w.mu.RLock()
	f, ended := w.f, w.ended("commit")
	w.mu.RUnlock()
	if f == nil {
		return ended
	}
	op, err := "commit", w.ctx.Err()
	if err == nil {
		op, err = "fsync", f.Sync()
	}
	if err == nil {
		op, err = "commit", w.place()
	}
	if err != nil {
		return w.giveUp(op, err)
	}
	w.mu.Lock()
	err = f.Close()
	w.f = nil
	w.mu.Unlock()
	for _, dir := range w.toSync {
		if serr := w.l.syncFolder(dir); err == nil {
			err = serr
		}
	}
	return fail("fsync", w.l.uri, w.name, err)
}

// place gives the temporary file its name: by rename, or by a link that fails where the name is
// taken.
func (w *localWriter) place() error {
	if !w.onlyNew {
		return w.l.root.Rename(w.temp, w.full)
	}
	err := w.l.root.Link(w.temp, w.full)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) ||
		errors.Is(err, syscall.ENOSYS) {
		return robocache.Unsupported("commit", nil, "this file system has no hard links, by which a name is taken only once").
			WithCause(err).
			WithHint("write to another volume")
	}
	if err == nil {
		w.l.root.Remove(w.temp)
	}
	return err
}

func (l *Local) syncFolder(dir string) error {
	d, err := l.root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil // a file system that cannot sync folders, as some network ones
	}
	return err
}

// Remove deletes a file (of a link: the link). A name that is not there is ErrNotFound.
func (l *Local) Remove(ctx context.Context, name string) (err error) {
	if name, err = clean(ctx, l.uri, "remove", name); err != nil {
		return err
	}
	info, err := l.root.Lstat(l.at(name))
	if err := fail("remove", l.uri, name, err); err != nil {
		return err
	}
	if info.IsDir() {
		return l.notRegular("remove", name, info.Mode())
	}
	return fail("remove", l.uri, name, l.root.Remove(l.at(name)))
}

// Sweep removes temporary files last written more than age ago, which killed processes left behind,
// and says how many. It touches nothing else.
func (l *Local) Sweep(ctx context.Context, age time.Duration) (int, error) {
	n := 0
	before := time.Now().Add(-age)
	err := fs.WalkDir(
		l.root.FS(),
		path.Join(".", l.prefix),
		func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if !d.Type().IsRegular() || !strings.HasPrefix(d.Name(), tempPrefix) {
				return nil
			}
			if info, err := d.Info(); err != nil || info.ModTime().After(before) {
				return nil
			}
			if err := l.root.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			n++
			return nil
		},
	)
	return n, fail("sweep", l.uri, "", err)
}
