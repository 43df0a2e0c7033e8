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

// folder is the local folder of a set; "" where it is remote.
func folder(uri string) string {
	if p, ok := strings.CutPrefix(uri, "file://"); ok || !strings.Contains(uri, "://") {
		return p
	}
	return ""
}

// preparePages brings the page cache into the state that was asked for, and says what is known of
// it: that files were evicted shows in what is read of devices.
func preparePages(dir, want string) (string, error) {
	files, bytes, err := filesBelow(dir)
	if err != nil {
		return "", err
	}
	switch {
	case want == "cold":
		if err := evict(files); err != nil {
			return "", err
		}
	case bytes < report.Kilobytes("MemAvailable")<<10/2:
		if err := warm(files); err != nil {
			return "", err
		}
	default:
		return "unproven", nil
	}
	return want, nil
}

// filesBelow are the regular files of a local set.
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

// VideoFiles finds the mp4 files below the folders given; files stand for themselves.
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

// eachFile opens file after file.
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

// warm reads the files once, so that the page cache holds what it can.
func warm(files []string) error {
	return eachFile(files, func(f *os.File) error { _, err := io.Copy(io.Discard, f); return err })
}

// evict asks the kernel to drop the files' pages. Pages that another process maps stay.
func evict(files []string) error {
	return eachFile(files, func(f *os.File) error {
		_ = f.Sync() // dirty pages cannot be dropped; a read-only file system refuses
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}
