package bench

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
)

// localFolder returns the local folder of a set, or "" if the set is remote.
func localFolder(uri string) string {
	if p, ok := strings.CutPrefix(uri, "file://"); ok || !strings.Contains(uri, "://") {
		return p
	}
	return ""
}

// preparePages brings the page cache into the requested state. It returns the state that can be
// claimed: "unproven" if a warm cache was requested but the set may not fit. Whether an eviction
// worked is visible in the device reads.
func preparePages(dir, want string) (string, error) {
	files, bytes, err := filesBelow(dir)
	if err != nil {
		return "", err
	}
	switch {
	case want == "cold":
		if err := evictPages(files); err != nil {
			return "", err
		}
	case bytes < report.Kilobytes("MemAvailable")<<10/2:
		if err := warmPages(files); err != nil {
			return "", err
		}
	default:
		return "unproven", nil
	}
	return want, nil
}

// filesBelow returns the regular files of a local set and their total size.
func filesBelow(dir string) (files []string, bytes int64, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		i, err := d.Info()
		if err == nil {
			files, bytes = append(files, p), bytes+i.Size()
		}
		return err
	})
	return files, bytes, robocache.At(err, robocache.Where{"dataset": dir})
}

// VideoFiles returns the mp4 files below the given folders. Files in args are returned unchanged.
func VideoFiles(args []string) (out []string, err error) {
	for _, a := range args {
		files, _, err := filesBelow(a)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if f == a || filepath.Ext(f) == ".mp4" {
				out = append(out, f)
			}
		}
	}
	if len(out) == 0 {
		return nil, robocache.NotFound("decode", robocache.Where{"file": args[0]}, "no .mp4 here")
	}
	return out, nil
}

// eachFile opens the files one by one and calls do for each.
func eachFile(files []string, do func(f *os.File) error) error {
	for _, p := range files {
		f, err := os.Open(p)
		if err == nil {
			err = do(f)
			f.Close()
		}
		if err != nil {
			return robocache.At(err, robocache.Where{"file": p})
		}
	}
	return nil
}

// warmPages reads the files once, to load them into the page cache.
func warmPages(files []string) error {
	return eachFile(files, func(f *os.File) error { _, err := io.Copy(io.Discard, f); return err })
}

// evictPages asks the kernel to drop the pages of the files. Pages that another process maps are
// kept.
func evictPages(files []string) error {
	return eachFile(files, func(f *os.File) error {
		_ = f.Sync() // dirty pages cannot be dropped; a read-only file system refuses
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}
