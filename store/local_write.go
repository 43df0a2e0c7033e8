package store

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
)

// tempPrefix is the prefix of unfinished files. They are in the folder of the final file. List
// omits them.
const tempPrefix = ".robocache-tmp-"

// makeFolder creates the folder of a writable store and its parents.
func makeFolder(dir string) error {
	if strings.IndexByte(dir, 0) >= 0 {
		return robocache.Malformed(
			"create",
			robocache.Where{"dataset": quoteName(dir)},
			"NUL in the path",
		)
	}
	return storeError("create", dir, "", os.MkdirAll(dir, 0o777))
}

// tempFile is the part of *os.File that a writer needs. Tests replace it with a full disk.
type tempFile interface {
	io.Writer
	io.WriterAt
	Sync() error
	Close() error
}

// Create begins a file that replaces name at Commit.
func (l *Local) Create(ctx context.Context, name string) (Writer, error) {
	return l.createFile(ctx, name, false)
}

// CreateNew is Create, but Commit returns ErrExists if the name exists by then. If several writers
// use one name, one succeeds.
func (l *Local) CreateNew(ctx context.Context, name string) (Writer, error) {
	return l.createFile(ctx, name, true)
}

// createFile is Create, or CreateNew if onlyNew is set.
func (l *Local) createFile(ctx context.Context, name string, onlyNew bool) (_ Writer, err error) {
	if name, err = cleanFor(ctx, l.uri, "create", name); err != nil {
		return nil, err
	}
	full := l.rootPath(name)
	if info, err := l.root.Lstat(full); err == nil && info.IsDir() {
		return nil, l.notRegular("create", name, info.Mode())
	}
	dir := path.Dir(full)
	toSync := l.missingFolders(dir)
	if err := storeError("create", l.uri, name, l.root.MkdirAll(dir, 0o777)); err != nil {
		return nil, err
	}
	temp := path.Join(dir, tempPrefix+rand.Text())
	f, err := l.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err := storeError("create", l.uri, name, err); err != nil {
		return nil, err
	}
	return &localWriter{
		l:       l,
		file:    f,
		name:    name,
		full:    full,
		temp:    temp,
		toSync:  append(toSync, dir),
		onlyNew: onlyNew,
		ctx:     ctx,
	}, nil
}

// missingFolders returns the folders that get a new entry when dir is created. Without an fsync of
// them, a crash could lose the path to the file.
func (l *Local) missingFolders(dir string) []string {
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

// localWriter writes a temporary file next to the final one.
type localWriter struct {
	l          *Local
	ctx        context.Context // context of Create; its end stops further writes
	name       string
	full, temp string
	toSync     []string // folders that Commit syncs
	onlyNew    bool     // Commit must not replace a file (CreateNew)

	mu   sync.RWMutex // writers share it; Commit and Abort hold it exclusively
	file tempFile     // nil after Commit, Abort or a failed write
	err  error        // error of later calls; nil after Commit
}

func (w *localWriter) Write(p []byte) (int, error) {
	return w.writeWith(func(f tempFile) (int, error) { return f.Write(p) })
}

func (w *localWriter) WriteAt(p []byte, off int64) (int, error) {
	return w.writeWith(func(f tempFile) (int, error) { return f.WriteAt(p, off) })
}

// writeWith calls do with the temporary file. An error ends the writer.
func (w *localWriter) writeWith(do func(tempFile) (int, error)) (int, error) {
	w.mu.RLock()
	f := w.file
	if f == nil {
		defer w.mu.RUnlock()
		return 0, w.endedError("write")
	}
	err := w.ctx.Err()
	n := 0
	if err == nil {
		n, err = do(f)
	}
	w.mu.RUnlock()
	if err != nil {
		// Remove the file now and not at Abort, because a full disk needs the space.
		return n, w.discardFile("write", err)
	}
	return n, nil
}

// endedError returns the error of a call after Commit, Abort or a failed write. Caller must hold
// mu.
func (w *localWriter) endedError(op string) error {
	if w.err != nil {
		return w.err
	}
	return closedError(op, w.l.uri, w.name)
}

// discardFile removes the temporary file and keeps err for later calls.
func (w *localWriter) discardFile(op string, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return w.endedError(op)
	}
	w.file.Close()
	w.file = nil
	w.l.root.Remove(w.temp)
	w.err = storeError(op, w.l.uri, w.name, err)
	return w.err
}

// Abort discards the written bytes. After Commit it does nothing.
func (w *localWriter) Abort() {
	w.discardFile("abort", robocache.Misuse("", nil, "used after Abort"))
}

// Commit syncs the file, gives it its final name, and syncs the folders.
func (w *localWriter) Commit() error {
	w.mu.RLock()
	f := w.file
	ended := w.endedError("commit")
	w.mu.RUnlock()
	if f == nil {
		return ended
	}
	op := "commit"
	err := w.ctx.Err()
	if err == nil {
		op = "fsync"
		err = f.Sync()
	}
	if err == nil {
		op = "commit"
		err = w.publishFile()
	}
	if err != nil {
		return w.discardFile(op, err)
	}
	w.mu.Lock()
	err = f.Close()
	w.file = nil
	w.mu.Unlock()
	for _, dir := range w.toSync {
		serr := w.l.syncFolder(dir)
		if err == nil {
			err = serr
		}
	}
	return storeError("fsync", w.l.uri, w.name, err)
}

// publishFile gives the temporary file its final name. It renames the file, or links it if an
// existing file must not be replaced.
func (w *localWriter) publishFile() error {
	if !w.onlyNew {
		return w.l.root.Rename(w.temp, w.full)
	}
	err := w.l.root.Link(w.temp, w.full)
	noLinks := []error{syscall.EPERM, syscall.ENOTSUP, syscall.ENOSYS}
	if slices.ContainsFunc(noLinks, func(class error) bool { return errors.Is(err, class) }) {
		return robocache.Unsupported(
			"commit",
			nil,
			"this file system has no hard links, which exclusive creation needs",
		).
			WithCause(err).
			WithHint("write to another volume")
	}
	if err == nil {
		w.l.root.Remove(w.temp)
	}
	return err
}

// syncFolder makes the entries of a folder durable.
func (l *Local) syncFolder(dir string) error {
	d, err := l.root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil // some network file systems cannot sync folders
	}
	return err
}

// Remove deletes a file. For a link, it deletes the link. A missing name is ErrNotFound.
func (l *Local) Remove(ctx context.Context, name string) (err error) {
	if name, err = cleanFor(ctx, l.uri, "remove", name); err != nil {
		return err
	}
	info, err := l.root.Lstat(l.rootPath(name))
	if err := storeError("remove", l.uri, name, err); err != nil {
		return err
	}
	if info.IsDir() {
		return l.notRegular("remove", name, info.Mode())
	}
	return storeError("remove", l.uri, name, l.root.Remove(l.rootPath(name)))
}

// Sweep removes temporary files of killed processes that were last written more than age ago. It
// returns their number and removes nothing else.
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
	return n, storeError("sweep", l.uri, "", err)
}
