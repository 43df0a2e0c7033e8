package robocache

import "fmt"

// NotFound returns an error of class ErrNotFound. op names the operation that failed. where locates
// the fault and may be nil. format and args state what is wrong, as in fmt.Sprintf; an empty text
// is completed by Expected or WithCause. The other constructors have the same parameters.
func NotFound(op string, where Where, format string, args ...any) *Error {
	return &Error{Class: ErrNotFound, Op: op, Where: where, Msg: fmt.Sprintf(format, args...)}
}

// Malformed returns an error of class ErrMalformed: the input breaks the rules of its format.
func Malformed(op string, where Where, format string, args ...any) *Error {
	return &Error{Class: ErrMalformed, Op: op, Where: where, Msg: fmt.Sprintf(format, args...)}
}

// Unsupported returns an error of class ErrUnsupported: the input or request is valid, but
// RoboCache cannot process it.
func Unsupported(op string, where Where, format string, args ...any) *Error {
	return &Error{Class: ErrUnsupported, Op: op, Where: where, Msg: fmt.Sprintf(format, args...)}
}

// ResourceLimit returns an error of class ErrResourceLimit: memory, address space, disk space or a
// stated limit is exhausted.
func ResourceLimit(op string, where Where, format string, args ...any) *Error {
	return &Error{Class: ErrResourceLimit, Op: op, Where: where, Msg: fmt.Sprintf(format, args...)}
}

// Temporary returns an error of class ErrTemporary: the same request may succeed later.
func Temporary(op string, where Where, format string, args ...any) *Error {
	return &Error{Class: ErrTemporary, Op: op, Where: where, Msg: fmt.Sprintf(format, args...)}
}

// Misuse returns an error of class ErrMisuse: the caller has to change the request.
func Misuse(op string, where Where, format string, args ...any) *Error {
	return &Error{Class: ErrMisuse, Op: op, Where: where, Msg: fmt.Sprintf(format, args...)}
}

// NewError returns an error of the given class, for callers that compute the class (see Classify).
func NewError(class error, op string, where Where, format string, args ...any) *Error {
	return &Error{Class: class, Op: op, Where: where, Msg: fmt.Sprintf(format, args...)}
}

// Expected sets the value that was expected and the value that was found, and returns e.
func (e *Error) Expected(want, got string) *Error {
	e.Want, e.Got = want, got
	return e
}

// WithCause sets the error that caused e, and returns e.
func (e *Error) WithCause(err error) *Error {
	e.Err = err
	return e
}

// WithHint sets the advice to the user, an imperative sentence, and returns e. format and args are
// those of fmt.Sprintf.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}
