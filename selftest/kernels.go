package selftest

import (
	"fmt"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

// kernels runs the conformance vectors on the kernels' back ends.
func kernels() []Result {
	r := Result{Part: "kernel reference", Present: true}
	ran, failures := conform.Run(kernel.Reference{})
	r.OK = ran > 0 && len(failures) == 0
	r.Detail = fmt.Sprintf("%d vectors, pure Go", ran)
	if len(failures) > 0 {
		r.Detail = fmt.Sprintf("%d of %d vectors wrong; the first: %v", len(failures), ran, failures[0])
	}
	return []Result{r,
		{Part: "kernel SIMD", Detail: "not in this version"},
		{Part: "kernel CUDA", Detail: "not in this version"},
	}
}
