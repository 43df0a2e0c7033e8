package selftest

import "context"

// Run tests every back end that is here.
func Run(ctx context.Context) []Result {
	return append(kernels(ctx), decoders(ctx)...)
}

// OK says that everything present is right.
func OK(results []Result) bool {
	for _, r := range results {
		if r.Present && !r.OK {
			return false
		}
	}
	return true
}
