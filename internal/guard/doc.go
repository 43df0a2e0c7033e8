// Package guard keeps panics inside: whatever was in the input, and whichever goroutine met it, the caller gets a typed error.
// A goroutine that nothing guards would end the whole process, a user's training with it.
//
// Use: defer guard.Malformed("zarr open", &err), directly: a deferred function that calls it would catch nothing.
//
// A parser may end what it does by Fail, Check or Must: the error comes out, as it is, at the nearest guard, which each exported function
// and each goroutine of such a package has: Malformed where the input is a stranger's, Into where a panic is a defect and passes.
package guard
