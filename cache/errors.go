package cache

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/goatnote-inc/robocache"
)

const (
	hintFiles = "raise the limit of open files: ulimit -n"
	hintLimit = "raise the limit of the size of files: ulimit -f"
)

func hintDir() string {
	return "name another directory with " + robocache.Option("cache") +
		", one on a local disk that this process may write; or " + robocache.Option("cache", "ram")
}

func hintSpace() string {
	return "free space on that file system, or name a directory on another one with " +
		robocache.Option("cache")
}

// errUnsupported returns the error of a system without caches on disk.
func errUnsupported() error {
	return robocache.Unsupported(
		"open cache",
		nil,
		"a cache on disk needs mappings and file locks of Linux or macOS",
	).
		WithHint("Pass %s", robocache.Option("cache", "ram"))
}

// systemError classifies an error of the operating system and adds a hint. It returns nil if err is
// nil.
func systemError(op, dir, file string, err error) error {
	if err == nil {
		return nil
	}
	var known *robocache.Error
	if errors.As(err, &known) {
		return err
	}
	where := robocache.Where{"cache": dir}
	if file != "" {
		where["file"] = file
	}
	e := robocache.NewError(robocache.Classify(err), op, where, "").WithCause(err)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Msg = "no space left"
		e.Hint = hintSpace()
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		e.Msg, e.Hint = "too many open files", hintFiles
	case errors.Is(err, syscall.EFBIG):
		e.Class = robocache.ErrResourceLimit
		e.Hint = hintLimit
		e.Msg = "a file may not become that large"
	case errors.Is(err, syscall.ENOMEM):
		e.Msg = "no address space to map a shard"
		e.Hint = "raise ulimit -v or sysctl vm.max_map_count, or pass a smaller " +
			robocache.Option("cache_budget")
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		e.Class = robocache.ErrMisuse
		e.Msg = "the directory cannot be written"
		e.Hint = hintDir()
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EEXIST):
		e.Class = robocache.ErrMisuse
		e.Msg = "not a directory"
		e.Hint = hintDir()
	case errors.Is(err, syscall.ENOLCK),
		errors.Is(err, syscall.ENOTSUP),
		errors.Is(err, syscall.ENOSYS),
		errors.Is(err, syscall.ENODEV):
		e.Class = robocache.ErrUnsupported
		e.Hint = hintDir()
		e.Msg = "this file system has no locks or no mappings, without which processes cannot " +
			"share a cache"
	case errors.Is(err, syscall.EIO):
		e.Class = robocache.ErrTemporary
		e.Msg = "the disk reports an error"
	}
	return e
}
