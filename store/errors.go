package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/goatnote-inc/robocache"
)

// Causes inside a *robocache.Error, for errors.Is, where the class alone does not say enough.
var (
	// ErrChanged: the file is no longer the one that was opened. Class temporary: open it again and
	// start over. Reading again through the same handle cannot help.
	ErrChanged = errors.New("changed while reading")
	// ErrExists: CreateNew found the name taken. Class misuse.
	ErrExists = errors.New("already exists")
)

func linkHint() string {
	return "if you trust the dataset's links: " + robocache.Option("follow_links", true) +
		"; or open a folder that holds both ends, or copy the file"
}

// fail gives an error of the operating system its class and place. The end of a context stays what
// it is: it is the caller's doing.
func fail(op, uri, name string, err error) error {
	if err == nil {
		return nil
	}
	if err == context.Canceled || err == context.DeadlineExceeded {
		return err
	}
	where := robocache.Where{"dataset": uri}
	if name != "" {
		where["file"] = show(name)
	}
	var already *robocache.Error
	if errors.As(err, &already) {
		return robocache.At(err, where)
	}
	e := robocache.NewError(robocache.Classify(err), op, where, "").WithCause(err)
	var system *fs.PathError
	if errors.As(err, &system) && system == err {
		e.Err = system.Err // its path and its system call ("statat") are said already, in our words
	}
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		e.Class = robocache.ErrNotFound // "a.txt/b": there is no such file
	case errors.Is(err, syscall.EFBIG):
		e.Class = robocache.ErrResourceLimit
	case errors.Is(err, fs.ErrExist):
		e.Class, e.Err = robocache.ErrMisuse, errors.Join(ErrExists, err)
	case errors.Is(err, fs.ErrClosed):
		e.Class, e.Msg = robocache.ErrMisuse, "used after Close"
	case errors.Is(err, syscall.ELOOP):
		e.Hint = "a link points back at itself"
	case errors.Is(err, syscall.EMFILE):
		e.Hint = "raise 'ulimit -n'"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Hint = "free space on the volume or write elsewhere; nothing half-written was left"
	case strings.Contains(err.Error(), "path escapes"): // os.Root has no exported value for it
		e.Want, e.Got, e.Hint = "a link that stays inside the dataset's root", "a link that leaves it", linkHint()
	}
	return e
}

// closed is the error of a handle used after its Close.
func closed(op, uri, name string) error { return fail(op, uri, name, fs.ErrClosed) }

// pastEnd is the error of a range outside the file: offsets come from the file's own tables, so the
// input is malformed.
func pastEnd(uri, name string, off int64, n int, size int64) error {
	return robocache.Malformed("read", robocache.Where{"dataset": uri, "file": show(name), "offset": off}, "").
		Expected(strconv.Itoa(n)+" bytes inside the file", "a file of "+strconv.FormatInt(size, 10)+" bytes").
		WithCause(io.ErrUnexpectedEOF).
		WithHint("the file looks truncated, or its index is wrong; fetch it again")
}

// outside says whether [off, off+n) leaves a file of size bytes. No sum: off comes from files and
// may be near the largest int64.
func outside(off int64, n int, size int64) bool {
	return off < 0 || off > size || int64(n) > size-off
}

func changed(uri, name, want, got string) error {
	return robocache.Temporary("read", robocache.Where{"dataset": uri, "file": show(name)}, "").
		Expected("version "+want, got).WithCause(ErrChanged).
		WithHint("something writes to the dataset; open it again when it is at rest")
}

func unsupported(op, uri, msg, hint string) error {
	return robocache.Unsupported(op, robocache.Where{"dataset": uri}, "%s", msg).
		WithHint("%s", hint)
}
