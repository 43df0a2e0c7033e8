// Package guard lets leaf decoders of bytes raise errors and return them at their exported
// functions.
//
// A decoder ends its work with Fail, Check or Must. Each exported function of the package recovers
// the error: defer guard.Recover("zarr open", &err), or guard.Into if a panic of another kind
// passes on. Recover must be deferred directly, because recover has no effect in a function that a
// deferred function calls. No other package imports guard (internal/architecture); all others
// return errors.
//
// A panic of the Go runtime (nil dereference, index out of range) is a defect of RoboCache for any
// input: Recover turns it into an error of class ErrInternal. A decoder must therefore check the
// counts and offsets of its input before it uses them.
package guard
