package bench

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// folder is the local folder of a set; "" where it is remote.
func folder(uri string) string {
	if p, ok := strings.CutPrefix(uri, "file://"); ok || !strings.Contains(uri, "://") {
		return p
	}
	return ""
}

// preparePages brings the page cache into the state that was asked for, and says what was achieved: the state, and the share of the set's pages that it holds.
func preparePages(dir, want string) (state string, held *float64) {
	files, bytes, err := filesBelow(dir)
	cold := want == "cold"
	switch {
	case err != nil:
	case cold:
		err = evict(files)
	case bytes < report.Kilobytes("MemAvailable")<<10/2:
		err = warm(files)
	}
	guard.Check(err)
	share, known := resident(files)
	if !known {
		return "unproven", nil
	}
	if cold && share >= 0.01 || !cold && share <= 0.99 {
		want = "unproven"
	}
	return want, &share
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
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Op: "bench decode", Where: robocache.Where{"file": args[0]}, Msg: "no .mp4 here"}
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

// evict asks the kernel to drop the files' pages. Pages that another process maps stay: resident says what was achieved.
func evict(files []string) error {
	return eachFile(files, func(f *os.File) error {
		_ = f.Sync() // dirty pages cannot be dropped; a read-only file system refuses
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// resident is the share of the files' pages that the page cache holds.
func resident(files []string) (float64, bool) {
	have, all, page := 0, 0, os.Getpagesize()
	err := eachFile(files, func(f *os.File) error {
		st, err := f.Stat()
		if err != nil || st.Size() == 0 {
			return err
		}
		m, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		defer unix.Munmap(m)
		vec := make([]byte, (len(m)+page-1)/page)
		if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&vec[0]))); errno != 0 {
			return errno
		}
		for _, v := range vec {
			have += int(v & 1)
		}
		all += len(vec)
		return nil
	})
	return float64(have) / float64(max(all, 1)), err == nil && all > 0
}
