package selftest

import "context"

// Run tests every back end of this machine.
func Run(ctx context.Context) []Result {
	return append(testKernels(ctx), testDecoders(ctx)...)
}

// OK reports whether every back end that is present is correct.
func OK(results []Result) bool {
	for _, r := range results {
		if r.Present && !r.OK {
			return false
		}
	}
	return true
}
