package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"sort"
	"syscall"
)

// lister is a Store that can name the folders in a folder without going through what is in them.
type lister interface {
	Folders(ctx context.Context, dir string) ([]string, error)
}

// Folders names the folders directly in the folder dir, sorted; "" is the root. A folder that is
// not there has none. Detecting a format must not cost a list of every file: a store that has no
// cheaper way answers ErrUnsupported.
func Folders(ctx context.Context, s Store, dir string) ([]string, error) {
	dir, err := cleanPrefix(dir)
	if err != nil {
		return nil, fail("list", s.URI(), "", err)
	}
	if l, ok := s.(lister); ok {
		return l.Folders(ctx, dir)
	}
	return nil, unsupported(
		"list",
		s.URI(),
		"this store cannot list folders",
		"name the dataset's own folder",
	)
}

// maxFolders bounds what one folder can cost.
const maxFolders = 1 << 16

// Folders follows links inside the root, as List does.
func (l *Local) Folders(ctx context.Context, dir string) (_ []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := l.stat(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) ||
		err == nil && !info.IsDir() {
		return nil, nil
	}
	var d *os.File
	if err == nil {
		d, err = l.openFile(dir, os.O_RDONLY)
	}
	if err := fail("list", l.uri, dir, err); err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxFolders)
	if err != nil && len(entries) == 0 {
		return nil, nil // io.EOF: an empty folder
	}
	var out []string
	for _, e := range entries {
		ok := e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := l.stat(path.Join(dir, e.Name()))
			// Who looks into one that leads out gets the error that says so.
			ok = err == nil && info.IsDir() || err != nil && l.hides(path.Join(dir, e.Name()))
		}
		if ok {
			out = append(out, e.Name())
		}
	}
	sort.Strings(out)
	return out, nil
}
