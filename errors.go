package robocache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sort"
	"strings"
	"syscall"
)

// The classes of error. Callers test for them with errors.Is and never parse the text of an error.
var (
	ErrNotFound      = errors.New("not found")
	ErrMalformed     = errors.New("malformed input")
	ErrUnsupported   = errors.New("unsupported")
	ErrResourceLimit = errors.New("resource limit")
	ErrTemporary     = errors.New("temporary")
	ErrMisuse        = errors.New("misuse")
	// ErrInternal is a defect of RoboCache: a panic of the Go runtime, whatever the input was.
	// Nothing skips such an error, because it says nothing about the data.
	ErrInternal = errors.New("internal error")
)

// classes are the names of the classes in JSON and Python, and the exit codes of the command line.
// The first class of the list that an error has decides.
var classes = []struct {
	err  error
	name string
	code int
}{
	{ErrInternal, "internal", 70},
	{ErrResourceLimit, "resource_limit", 13},
	{ErrTemporary, "temporary", 75},
	{ErrNotFound, "not_found", 10},
	{ErrMalformed, "malformed", 11},
	{ErrUnsupported, "unsupported", 12},
	{ErrMisuse, "misuse", 2},
	{context.DeadlineExceeded, "temporary", 75},
	{context.Canceled, "interrupted", 130},
}

// ClassOf returns the name of an error's class and its exit code: "failed" and 1 if err has no
// class.
func ClassOf(err error) (name string, code int) {
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return c.name, c.code
		}
	}
	return "failed", 1
}

// Bad reports whether err is a fault of the data, which another attempt would meet again. It
// returns false for faults of the transport, of the machine, of the caller and of RoboCache itself.
// Such faults must not cause an episode to be skipped.
func Bad(err error) bool {
	for _, class := range []error{ErrInternal, ErrTemporary, ErrResourceLimit} {
		if errors.Is(err, class) {
			return false
		}
	}
	return errors.Is(err, ErrMalformed) || errors.Is(err, ErrNotFound) ||
		errors.Is(err, ErrUnsupported)
}

// IsMachineLimit reports whether err is a lack of memory, address space, open files or disk space
// on this machine. Such an error says nothing about the data: it must not become a finding, and no
// recording may be left out because of it. Other errors of class ErrResourceLimit are about data
// that would take more than a limit of RoboCache.
func IsMachineLimit(err error) bool {
	for _, errno := range machineLimits {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

var machineLimits = []error{
	syscall.ENOMEM,
	syscall.EMFILE,
	syscall.ENFILE,
	syscall.ENOSPC,
	syscall.EDQUOT,
}

// Error is the error type of RoboCache: the fault, its location, and a hint how to correct it.
type Error struct {
	Class error // one of the Err… classes above
	Op    string
	Where Where
	Msg   string // the fault, if Want and Got do not state it
	Want  string // expected value
	Got   string // found value
	Hint  string // advice to the user, an imperative sentence
	Err   error  // cause, may be nil
}

// Where locates a fault by keys such as source (of a mixture), dataset, file, offset, box,
// row_group, column, episode, stream, index and row.
type Where map[string]any

// whereOrder lists the usual keys of Where from the outermost to the innermost. Other keys follow
// in alphabetical order.
var whereOrder = []string{
	"source",
	"dataset",
	"file",
	"pointer",
	"line",
	"box",
	"offset",
	"row_group",
	"column",
	"episode",
	"stream",
	"row",
	"index",
	"frame",
}

// String returns the location as "key value, key value", from the outermost to the innermost key.
func (w Where) String() string {
	seen := make(map[string]bool, len(w))
	var parts []string
	for _, k := range whereOrder {
		if v, ok := w[k]; ok {
			parts = append(parts, fmt.Sprintf("%s %v", k, v))
			seen[k] = true
		}
	}
	var rest []string
	for k := range w {
		if !seen[k] {
			rest = append(rest, k)
		}
	}
	sort.Strings(rest)
	for _, k := range rest {
		parts = append(parts, fmt.Sprintf("%s %v", k, w[k]))
	}
	return strings.Join(parts, ", ")
}

// Error returns the class, operation, location, fault and hint as one line.
func (e *Error) Error() string {
	var b strings.Builder
	if class := e.effectiveClass(); class != nil {
		b.WriteString(class.Error())
		b.WriteString(": ")
	}
	if e.Op != "" {
		b.WriteString(e.Op)
		b.WriteString(": ")
	}
	if len(e.Where) > 0 {
		b.WriteString(e.Where.String())
		b.WriteString(": ")
	}
	msg := e.Msg
	if e.Want != "" || e.Got != "" {
		if msg != "" {
			msg += ": "
		}
		msg += "expected " + e.Want + ", found " + e.Got
	}
	if msg == "" && e.Err != nil {
		msg = e.Err.Error()
	} else if e.Err != nil {
		msg += " (" + e.Err.Error() + ")"
	}
	b.WriteString(msg)
	if e.Hint != "" {
		b.WriteString("; hint: " + e.Hint)
	}
	return b.String()
}

// Unwrap returns the class and the cause to errors.Is and errors.As.
// The class of an error with an internal cause is ErrInternal: no wrapper hides a defect.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.effectiveClass()}
	}
	return []error{e.effectiveClass(), e.Err}
}

// effectiveClass returns ErrInternal if the cause is internal, else Class.
func (e *Error) effectiveClass() error {
	if e.Err != nil && errors.Is(e.Err, ErrInternal) {
		return ErrInternal
	}
	return e.Class
}

// At returns err with the keys of where added to its location. Keys that an *Error already has keep
// their values. Another error is wrapped in an *Error and classified (see Classify). At returns nil
// if err is nil.
func At(err error, where Where) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		c := *e
		c.Where = make(Where, len(e.Where)+len(where))
		for k, v := range where {
			c.Where[k] = v
		}
		for k, v := range e.Where {
			c.Where[k] = v
		}
		return &c
	}
	return &Error{Class: Classify(err), Where: where, Err: err}
}

// Classify returns the class of an error of the standard library or of the operating system. It
// returns err itself if a context was canceled or its deadline passed, because the caller caused
// that. A panic of the Go runtime is always ErrInternal.
func Classify(err error) error {
	var panicked runtime.Error
	if errors.As(err, &panicked) {
		return ErrInternal
	}
	for _, c := range classes {
		switch {
		case !errors.Is(err, c.err):
		case c.err == context.Canceled || c.err == context.DeadlineExceeded:
			return err
		default:
			return c.err
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotFound
	case IsMachineLimit(err):
		return ErrResourceLimit
	case errors.Is(err, fs.ErrPermission),
		errors.Is(err, syscall.EISDIR),
		errors.Is(err, syscall.ENOTDIR),
		errors.Is(err, syscall.EROFS):
		return ErrMisuse
	case errors.Is(err, syscall.EIO),
		errors.Is(err, syscall.EAGAIN),
		errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.ECONNREFUSED),
		errors.Is(err, syscall.ETIMEDOUT):
		return ErrTemporary
	}
	return ErrMalformed
}

// Locate adds a location to *err with At. Functions defer it, so that every error they return has
// a location.
func Locate(err *error, where Where) {
	if *err != nil {
		*err = At(*err, where)
	}
}

// LocateIn adds one key to the location of *err, as Locate does. It allocates only if there is an
// error.
func LocateIn(err *error, key string, value any) {
	if *err != nil {
		*err = At(*err, Where{key: value})
	}
}

// IsFatal reports whether err says nothing about the data: it is an internal error or a limit of
// this machine. Code that turns errors into findings, or ignores them, returns such an error
// instead.
func IsFatal(err error) bool {
	return errors.Is(err, ErrInternal) || IsMachineLimit(err)
}
