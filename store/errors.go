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

// Causes inside a *robocache.Error, for errors.Is. They distinguish errors of the same class.
var (
	// ErrChanged means that the file is no longer the one that was opened. Its class is temporary.
	// Open the file again and start over: reading through the same handle cannot succeed.
	ErrChanged = errors.New("changed while reading")
	// ErrExists means that the name of CreateNew is taken. Its class is misuse.
	ErrExists = errors.New("already exists")
)

// linkHint returns the hint for a link that leaves the root.
func linkHint() string {
	return "if you trust the dataset's links: " + robocache.Option("follow_links", true) +
		"; or open a folder that holds both ends, or copy the file"
}

// storeError adds a class, the operation, the store and the file to an error of the operating
// system. Context errors are returned unchanged, because the caller caused them. It returns nil if
// err is nil.
func storeError(op, uri, name string, err error) error {
	if err == nil {
		return nil
	}
	if err == context.Canceled || err == context.DeadlineExceeded {
		return err
	}
	where := robocache.Where{"dataset": uri}
	if name != "" {
		where["file"] = quoteName(name)
	}
	var already *robocache.Error
	if errors.As(err, &already) {
		return robocache.At(err, where)
	}
	e := robocache.NewError(robocache.Classify(err), op, where, "").WithCause(err)
	var system *fs.PathError
	if errors.As(err, &system) && system == err {
		// Err would repeat the path, which is in Where, and name a system call such as "statat".
		e.Err = system.Err
	}
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		e.Class = robocache.ErrNotFound // "a.txt/b" does not exist
	case errors.Is(err, syscall.EFBIG):
		e.Class = robocache.ErrResourceLimit
	case errors.Is(err, fs.ErrExist):
		e.Class = robocache.ErrMisuse
		e.Err = errors.Join(ErrExists, err)
	case errors.Is(err, fs.ErrClosed):
		e.Class = robocache.ErrMisuse
		e.Msg = "used after Close"
	case errors.Is(err, syscall.ELOOP):
		e.Hint = "a link points back at itself"
	case errors.Is(err, syscall.EMFILE):
		e.Hint = "raise 'ulimit -n'"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Hint = "free space on the volume or write elsewhere; no partial file is left"
	case strings.Contains(err.Error(), "path escapes"): // os.Root exports no error value for this
		e.Want = "a link that stays inside the dataset's root"
		e.Got = "a link that leaves it"
		e.Hint = linkHint()
	}
	return e
}

// closedError returns the error of a handle that is used after its Close.
func closedError(op, uri, name string) error { return storeError(op, uri, name, fs.ErrClosed) }

// rangeError returns the error of a range outside the file. Offsets come from the file's own
// tables, so the input is malformed.
func rangeError(uri, name string, off int64, n int, size int64) error {
	return robocache.Malformed("read", robocache.Where{
		"dataset": uri,
		"file":    quoteName(name),
		"offset":  off,
	}, "").
		Expected(
			strconv.Itoa(n)+" bytes inside the file",
			"a file of "+strconv.FormatInt(size, 10)+" bytes",
		).
		WithCause(io.ErrUnexpectedEOF).
		WithHint("the file looks truncated, or its index is wrong; fetch it again")
}

// isOutside reports whether [off, off+n) leaves a file of size bytes. It does not add off and n,
// because off comes from files and the sum may overflow.
func isOutside(off int64, n int, size int64) bool {
	return off < 0 || off > size || int64(n) > size-off
}

// changedError returns the error of a file whose version is not the one that was opened.
func changedError(uri, name, want, got string) error {
	return robocache.Temporary("read", robocache.Where{
		"dataset": uri,
		"file":    quoteName(name),
	}, "").
		Expected("version "+want, got).
		WithCause(ErrChanged).
		WithHint("something writes to the dataset; open it again when writing has ended")
}

func unsupportedError(op, uri, msg, hint string) error {
	return robocache.Unsupported(op, robocache.Where{"dataset": uri}, "%s", msg).
		WithHint("%s", hint)
}
