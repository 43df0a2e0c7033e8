package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Local is a folder of this machine. Everything goes through os.Root: no name and no link leads out
// of it, unless the caller said that links are followed; what is written never goes through such a
// link.
type Local struct {
	root   *os.Root
	prefix string // the dataset's place below root, "" or clean
	base   string // root's path
	uri    string
	follow bool
}

// OpenLocal opens an existing folder.
//
// A snapshot in Hugging Face's hub cache (datasets--owner--name/snapshots/<commit>) is a tree of
// links into ../../blobs: there the repository's folder is the root, so that those links, and no
// others, work.
func OpenLocal(dir string) (*Local, error) { return openLocal(dir, false) }

// openLocal is OpenLocal; follow says that links may lead anywhere.
func openLocal(dir string, follow bool) (_ *Local, err error) {
	if strings.IndexByte(dir, 0) >= 0 {
		return nil, robocache.Malformed(
			"open",
			robocache.Where{"dataset": show(dir)},
			"NUL in the path",
		)
	}
	dir = filepath.Clean(dir)
	// Looked at first, because opening a FIFO waits for its other end.
	info, err := os.Stat(dir)
	if err := fail("open", dir, "", err); err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, robocache.Misuse("open", robocache.Where{"dataset": dir}, "").
			Expected("a folder", kind(info.Mode())).WithHint("name the folder that holds it")
	}
	base, prefix := hubRepository(dir)
	root, err := os.OpenRoot(base)
	if err := fail("open", dir, "", err); err != nil {
		return nil, err
	}
	return &Local{root: root, prefix: prefix, base: base, uri: dir, follow: follow}, nil
}

// hubKinds begin the names of repositories in the hub's cache.
var hubKinds = []string{"datasets--", "models--", "spaces--"}

// hubRepository splits …/datasets--o--n/snapshots/c/… behind datasets--o--n; other paths stay
// whole. A path may say so only once the folder that one stands in is before it, or links on the
// way are gone.
func hubRepository(dir string) (base, prefix string) {
	spellings := []string{dir}
	if abs, err := filepath.Abs(dir); err == nil {
		spellings = append(spellings, abs)
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			spellings = append(spellings, real)
		}
	}
	for _, spelling := range spellings {
		parts := strings.Split(filepath.ToSlash(spelling), "/")
		for i := len(parts) - 3; i >= 0; i-- {
			if parts[i+1] == "snapshots" &&
				slices.ContainsFunc(
					hubKinds,
					func(kind string) bool { return strings.HasPrefix(parts[i], kind) },
				) {
				return filepath.FromSlash(
						strings.Join(parts[:i+1], "/"),
					), strings.Join(
						parts[i+1:],
						"/",
					)
			}
		}
	}
	return dir, ""
}

// URI is the folder's path.
func (l *Local) URI() string { return l.uri }

// Close gives the folder's handle back; open files stay usable.
func (l *Local) Close() error { return l.root.Close() }

// at is a name's place below the os.Root.
func (l *Local) at(name string) string { return path.Join(l.prefix, name) }

// stat looks at what a name leads to.
func (l *Local) stat(name string) (fs.FileInfo, error) {
	if l.follow {
		return os.Stat(l.path(name))
	}
	return l.root.Stat(path.Join(".", l.at(name)))
}

func (l *Local) openFile(name string, flag int) (*os.File, error) {
	if l.follow {
		return os.OpenFile(l.path(name), flag, 0)
	}
	return l.root.OpenFile(path.Join(".", l.at(name)), flag, 0)
}

func (l *Local) path(name string) string {
	return filepath.Join(l.base, filepath.FromSlash(l.at(name)))
}

// failed is fail, which also knows a name that is there and leads nowhere: not found is what may be
// left out, and this is not.
func (l *Local) failed(op, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		for i := range len(name) + 1 {
			if i < len(name) && name[i] != '/' {
				continue
			}
			part := name[:i]
			info, lerr := l.root.Lstat(l.at(part))
			if l.follow {
				info, lerr = os.Lstat(l.path(part))
			}
			if lerr != nil {
				break
			}
			if info.Mode()&fs.ModeSymlink == 0 {
				continue
			}
			if _, serr := l.stat(part); errors.Is(serr, fs.ErrNotExist) {
				return robocache.Malformed(op, robocache.Where{"dataset": l.uri, "file": show(name)}, "").
					Expected("a regular file", "a link that leads nowhere: "+l.target(part)).
					WithHint("fetch what it leads to: git annex get, dvc pull, or download the file again")
			}
		}
	}
	return fail(op, l.uri, name, err)
}

// target says where a link leads.
func (l *Local) target(name string) string {
	to, err := os.Readlink(l.path(name))
	if err != nil {
		return show(name)
	}
	return show(name) + " -> " + show(to)
}

// regular looks at what a name leads to, which must be a regular file.
func (l *Local) regular(ctx context.Context, op, name string) (string, fs.FileInfo, error) {
	var err error
	if name, err = clean(ctx, l.uri, op, name); err != nil {
		return "", nil, err
	}
	info, err := l.stat(name)
	if err != nil {
		return "", nil, l.failed(op, name, err)
	}
	if !info.Mode().IsRegular() {
		return "", nil, l.notRegular(op, name, info.Mode())
	}
	return name, info, nil
}

// Open opens a regular file for ranged reads.
func (l *Local) Open(ctx context.Context, name string) (_ robocache.Ranged, err error) {
	// Opening a device can have effects (a tape rewinds), and a FIFO waits: look before opening.
	// O_NONBLOCK: a FIFO that took the name's place since does not stop us either.
	if name, _, err = l.regular(ctx, "open", name); err != nil {
		return nil, err
	}
	f, err := l.openFile(name, os.O_RDONLY|syscall.O_NONBLOCK)
	if err != nil {
		return nil, l.failed("open", name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = l.notRegular("open", name, info.Mode())
	}
	if err != nil {
		f.Close()
		return nil, fail("open", l.uri, name, err)
	}
	return &localFile{
		f:      f,
		uri:    l.uri,
		name:   name,
		size:   info.Size(),
		mtime:  info.ModTime().UnixNano(),
		opened: time.Now(),
	}, nil
}

// Stat describes a regular file.
func (l *Local) Stat(ctx context.Context, name string) (_ Entry, err error) {
	name, info, err := l.regular(ctx, "stat", name)
	if err != nil {
		return Entry{}, err
	}
	return Entry{
		Name:    name,
		Size:    info.Size(),
		Version: localVersion(info.Size(), info.ModTime().UnixNano()),
	}, nil
}

// notRegular is malformed input where a dataset is read, and misuse where one is written.
func (l *Local) notRegular(op, name string, mode fs.FileMode) error {
	e := robocache.Malformed(op, robocache.Where{"dataset": l.uri, "file": show(name)}, "").
		Expected("a regular file", kind(mode))
	if op == "create" || op == "remove" {
		e.Class = robocache.ErrMisuse
	} else {
		e.Hint = "put the file itself there, or leave it out"
	}
	if mode.IsDir() {
		e.Err = syscall.EISDIR
	}
	return e
}

const (
	maxDepth = 64 // of folders in folders: what a link loop can cost
	// maxFollowed bounds how many links to folders are followed in folders that other links lead
	// to: a ladder of links, two from each folder to the next, has 2^depth ways to its end.
	maxFollowed = 1 << 15
)

// List gives the regular files below the folder prefix. Links are followed inside the root; what
// cannot be a file of this store (a link that leads nowhere or out, a FIFO, a device) is left out,
// as are this package's temporary files. Files names those.
func (l *Local) List(ctx context.Context, prefix string) ([]Entry, error) {
	return l.files(ctx, prefix, nil)
}

func (l *Local) files(
	ctx context.Context,
	prefix string,
	is func(name string) bool,
) (_ []Entry, err error) {
	prefix, err = cleanPrefix(prefix)
	if err := fail("list", l.uri, "", err); err != nil {
		return nil, err
	}
	w := walk{l: l, is: is}
	if err := w.folder(ctx, prefix, nil, false); err != nil {
		return nil, err
	}
	slices.SortFunc(w.out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return w.out, nil
}

// walk goes through folders. With is it lists too what stands in a file's place.
type walk struct {
	l        *Local
	is       func(name string) bool
	out      []Entry
	followed int // links to folders, in folders that other links lead to
}

// folder lists dir, the folders above given; linked says that a link leads to one of them.
func (w *walk) folder(ctx context.Context, dir string, above []fs.FileInfo, linked bool) error {
	l := w.l
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(above) > maxDepth {
		return robocache.ResourceLimit(
			"list",
			robocache.Where{"dataset": l.uri, "file": show(dir)},
			"folders nested deeper than %d",
			maxDepth,
		)
	}
	self, err := l.stat(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) ||
		err == nil && !self.IsDir() {
		return nil // as in an object store, nothing is below a name that is not there
	}
	if err != nil {
		return fail("list", l.uri, dir, err)
	}
	for _, a := range above {
		if os.SameFile(a, self) {
			return nil // a link back up: its files are listed already
		}
	}
	above = append(above, self)
	var entries []fs.DirEntry
	d, err := l.openFile(dir, os.O_RDONLY)
	if err == nil {
		entries, err = d.ReadDir(-1)
		d.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile, by a job that tidies up
	}
	if err != nil {
		return fail("list", l.uri, dir, err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		if err := w.entry(ctx, path.Join(dir, e.Name()), e.Type(), above, linked); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(
	ctx context.Context,
	name string,
	mode fs.FileMode,
	above []fs.FileInfo,
	linked bool,
) error {
	link := mode&fs.ModeSymlink != 0
	if link || mode.IsRegular() {
		info, err := w.l.stat(name)
		if err != nil {
			if link {
				w.odd(name, w.l.failed("list", name, err))
				return nil
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return fail("list", w.l.uri, name, err)
		}
		mode = info.Mode().Type()
		if mode.IsRegular() {
			w.out = append(
				w.out,
				Entry{
					Name:    name,
					Size:    info.Size(),
					Version: localVersion(info.Size(), info.ModTime().UnixNano()),
				},
			)
			return nil
		}
	}
	if !mode.IsDir() {
		w.odd(name, w.l.notRegular("list", name, mode))
		return nil
	}
	if link && linked {
		if w.followed++; w.followed > maxFollowed {
			return robocache.ResourceLimit("list", robocache.Where{"dataset": w.l.uri, "file": show(name)}, "more than %d links below links", maxFollowed).
				WithHint("folders that link to each other: remove links")
		}
	}
	before := len(w.out)
	if err := w.folder(ctx, name, above, linked || link); err != nil {
		return err
	}
	// A folder of such files may be called as they are.
	if w.is != nil && w.is(name) &&
		!slices.ContainsFunc(w.out[before:], func(e Entry) bool { return w.is(e.Name) }) {
		w.out = append(w.out, Entry{Name: name, Err: w.l.notRegular("list", name, mode)})
	}
	return nil
}

// odd lists what is no file: under a name that files have, and a link that hides a folder.
func (w *walk) odd(name string, err error) {
	if w.is == nil || !w.is(name) && !w.l.hides(name) {
		return
	}
	w.out = append(w.out, Entry{Name: name, Err: err})
}

// hides says whether a link that is not followed leads to a folder, or may have, by its name.
func (l *Local) hides(name string) bool {
	if strings.HasPrefix(path.Base(name), ".") {
		return false
	}
	if info, err := os.Lstat(l.path(name)); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return false
	}
	info, err := os.Stat(l.path(name))
	return err == nil && info.IsDir() || errors.Is(err, fs.ErrNotExist) && path.Ext(name) == ""
}

func localVersion(size, mtime int64) string {
	return strconv.FormatInt(size, 10) + "-" + strconv.FormatInt(mtime, 10)
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a file"
	case m.IsDir():
		return "a folder"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "something that is not a file (" + m.Type().String() + ")"
}
