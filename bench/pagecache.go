package bench

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/goatnote-inc/robocache"
)

// filesBelow are the regular files of a local set.
func filesBelow(dir string) (files []string, bytes int64, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		files, bytes = append(files, p), bytes+i.Size()
		return nil
	})
	if err != nil {
		return nil, 0, robocache.At(err, robocache.Where{"dataset": dir})
	}
	return files, bytes, nil
}

// warm reads the files once, so that the page cache holds what it can.
func warm(files []string) error {
	for _, p := range files {
		f, err := os.Open(p)
		if err != nil {
			return robocache.At(err, robocache.Where{"file": p})
		}
		_, err = io.Copy(io.Discard, f)
		f.Close()
		if err != nil {
			return robocache.At(err, robocache.Where{"file": p})
		}
	}
	return nil
}
