// Package guard turns panics into errors at the boundary of a package or of a goroutine.
// A panic in a goroutine without a guard would end the whole process, and a user's training with it.
//
// Use: defer guard.Recover("zarr open", &err), directly: recover has no effect in a function that a
// deferred function calls.
//
// A parser may end its work by Fail, Check or Must. The nearest guard returns that error as it is.
// Each exported function and each goroutine of such a package has a guard: Recover, or Into where a
// panic passes on to an outer guard.
//
// A panic of the Go runtime (nil dereference, index out of range) is a defect of RoboCache, whatever
// the input was: Recover makes it an error of class ErrInternal. A parser must therefore check the
// counts and offsets of its input before it uses them.
package guard
