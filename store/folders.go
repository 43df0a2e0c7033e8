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

// folderLister is a Store that lists folders without listing the files in them.
type folderLister interface {
	Folders(ctx context.Context, dir string) ([]string, error)
}

// Folders returns the names of the folders directly in dir, sorted. "" is the root. A missing
// folder has none. Detecting a format must not list every file, so a store without a cheap folder
// listing returns ErrUnsupported.
func Folders(ctx context.Context, s Store, dir string) ([]string, error) {
	dir, err := cleanPrefix(dir)
	if err != nil {
		return nil, storeError("list", s.URI(), "", err)
	}
	if l, ok := s.(folderLister); ok {
		return l.Folders(ctx, dir)
	}
	return nil, unsupportedError(
		"list",
		s.URI(),
		"this store cannot list folders",
		"name the dataset's own folder",
	)
}

// maxFolders limits the entries that are read from one folder.
const maxFolders = 1 << 16

// isFolder reports whether the result of a Stat may be that of a folder. It returns false for a
// missing name. It returns true for any other error, which the caller then reports.
func isFolder(info fs.FileInfo, err error) bool {
	if err == nil {
		return info.IsDir()
	}
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// Folders returns the names of the folders in dir. It follows links inside the root, as List does.
func (l *Local) Folders(ctx context.Context, dir string) (_ []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := l.statName(dir)
	if !isFolder(info, err) {
		return nil, nil
	}
	var d *os.File
	if err == nil {
		d, err = l.openFile(dir, os.O_RDONLY)
	}
	if err := storeError("list", l.uri, dir, err); err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxFolders)
	if err != nil && len(entries) == 0 {
		return nil, nil // io.EOF: the folder is empty
	}
	var out []string
	for _, e := range entries {
		ok := e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := l.statName(path.Join(dir, e.Name()))
			// A link that leaves the root is listed, so that reading it returns the error.
			ok = err == nil && info.IsDir() ||
				err != nil && l.mayHideFolder(path.Join(dir, e.Name()))
		}
		if ok {
			out = append(out, e.Name())
		}
	}
	sort.Strings(out)
	return out, nil
}
