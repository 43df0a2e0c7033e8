package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Local is a folder of this machine. Everything goes through os.Root: no name and no link leads out of it.
type Local struct {
	root   *os.Root
	folder *folder // root's, for what os.Root would allow too
	prefix string  // the dataset's place below root, "" or clean
	uri    string
}

// OpenLocal opens an existing folder.
//
// A snapshot in Hugging Face's hub cache (datasets--owner--name/snapshots/<commit>) is a tree of links into
// ../../blobs: there the repository's folder is the root, so that those links, and no others, work.
func OpenLocal(dir string) (*Local, error) {
	if strings.IndexByte(dir, 0) >= 0 {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "open", Where: robocache.Where{"dataset": show(dir)}, Msg: "NUL in the path"}
	}
	dir = filepath.Clean(dir)
	// Looked at first, because opening a FIFO waits for its other end.
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fail("open", dir, "", err)
	}
	if !info.IsDir() {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "open", Where: robocache.Where{"dataset": dir}, Want: "a folder", Got: kind(info.Mode()),
			Hint: "name the folder that holds it"}
	}
	base, prefix := hubRepository(dir)
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, fail("open", dir, "", err)
	}
	return &Local{root: root, folder: openFolder(root), prefix: prefix, uri: dir}, nil
}

// hubRepository splits …/datasets--o--n/snapshots/c/… behind datasets--o--n; other paths stay whole.
func hubRepository(dir string) (base, prefix string) {
	parts := strings.Split(filepath.ToSlash(dir), "/")
	for i := len(parts) - 3; i >= 0; i-- {
		if strings.HasPrefix(parts[i], "datasets--") && parts[i+1] == "snapshots" {
			return filepath.FromSlash(strings.Join(parts[:i+1], "/")), strings.Join(parts[i+1:], "/")
		}
	}
	return dir, ""
}

// URI is the folder's path.
func (l *Local) URI() string { return l.uri }

// Close gives the folder's handle back; open files stay usable.
func (l *Local) Close() error {
	l.folder.close()
	return l.root.Close()
}

// at is a name's place below the os.Root.
func (l *Local) at(name string) string { return path.Join(l.prefix, name) }

// Open opens a regular file for ranged reads.
func (l *Local) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name, err := CleanName(name)
	if err != nil {
		return nil, fail("open", l.uri, "", err)
	}
	if in, size, mtime := l.folder.open(l.at(name)); in != nil {
		return &localFile{f: in, uri: l.uri, name: name, size: size, mtime: mtime, opened: time.Now()}, nil
	}
	// Look before opening, as folder.open says.
	if info, err := l.root.Stat(l.at(name)); err != nil {
		return nil, fail("open", l.uri, name, err)
	} else if !info.Mode().IsRegular() {
		return nil, l.notRegular("open", name, info)
	}
	f, err := l.root.OpenFile(l.at(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fail("open", l.uri, name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = l.notRegular("open", name, info)
	}
	if err != nil {
		f.Close()
		return nil, fail("open", l.uri, name, err)
	}
	h := &localFile{f: osFile{f}, uri: l.uri, name: name, size: info.Size(), mtime: info.ModTime().UnixNano(), opened: time.Now()}
	return h, nil
}

// Stat describes a regular file.
func (l *Local) Stat(ctx context.Context, name string) (Entry, error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, err
	}
	name, err := CleanName(name)
	if err != nil {
		return Entry{}, fail("stat", l.uri, "", err)
	}
	info, err := l.root.Stat(l.at(name))
	if err != nil {
		return Entry{}, fail("stat", l.uri, name, err)
	}
	if !info.Mode().IsRegular() {
		return Entry{}, l.notRegular("stat", name, info)
	}
	return Entry{Name: name, Size: info.Size(), Version: localVersion(info.Size(), info.ModTime().UnixNano())}, nil
}

func (l *Local) notRegular(op, name string, info fs.FileInfo) error {
	e := &robocache.Error{Class: robocache.ErrMisuse, Op: op, Where: robocache.Where{"dataset": l.uri, "file": show(name)}, Want: "a regular file", Got: kind(info.Mode())}
	if info.IsDir() {
		e.Err = syscall.EISDIR
	}
	return e
}

// maxDepth bounds folders in folders, and with them what a link loop can cost.
const maxDepth = 64

// List gives the regular files below the folder prefix. Links are followed inside the root; what cannot be a file of this
// store (a link that leads nowhere or out, a FIFO, a device) is left out, as are this package's temporary files.
func (l *Local) List(ctx context.Context, prefix string) ([]Entry, error) {
	prefix, err := cleanPrefix(prefix)
	if err != nil {
		return nil, fail("list", l.uri, "", err)
	}
	var out []Entry
	if err := l.walk(ctx, prefix, nil, &out); err != nil {
		return nil, err
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

func (l *Local) walk(ctx context.Context, dir string, above []fs.FileInfo, out *[]Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(above) > maxDepth {
		return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "list", Where: robocache.Where{"dataset": l.uri, "file": show(dir)}, Msg: "folders nested deeper than " + strconv.Itoa(maxDepth)}
	}
	self, err := l.root.Stat(path.Join(".", l.at(dir)))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !self.IsDir() {
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
	d, err := l.root.Open(path.Join(".", l.at(dir)))
	if err != nil {
		return fail("list", l.uri, dir, err)
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if err != nil {
		return fail("list", l.uri, dir, err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		name := path.Join(dir, e.Name())
		mode := e.Type()
		if mode&fs.ModeSymlink != 0 || mode.IsRegular() {
			info, err := l.root.Stat(l.at(name))
			if err != nil {
				if mode.IsRegular() && !errors.Is(err, fs.ErrNotExist) {
					return fail("list", l.uri, name, err)
				}
				continue
			}
			mode = info.Mode().Type()
			if mode.IsRegular() {
				*out = append(*out, Entry{Name: name, Size: info.Size(), Version: localVersion(info.Size(), info.ModTime().UnixNano())})
				continue
			}
		}
		if mode.IsDir() {
			if err := l.walk(ctx, name, above, out); err != nil {
				return err
			}
		}
	}
	return nil
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
