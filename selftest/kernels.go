package selftest

import (
	"context"
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
	"github.com/goatnote-inc/robocache/kernel/cpu"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// testKernels runs the conformance vectors on each kernel back end: the reference, the CPU cores
// and each GPU.
func testKernels(ctx context.Context) []Result {
	out := []Result{
		testVectors(
			"kernel reference",
			"pure Go",
			map[string]string{"instructions": "pure Go"},
			kernel.Reference{},
		),
		testSIMD(),
	}
	return append(out, testGPUs(ctx)...)
}

// testVectors returns the verdict on a back end that is present.
func testVectors(part, detail string, info map[string]string, b kernel.Backend) Result {
	ran, failures := conform.Run(b)
	r := Result{Part: part, Present: true, OK: ran > 0 && len(failures) == 0, Info: info}
	info["vectors"], info["wrong"] = strconv.Itoa(ran), strconv.Itoa(len(failures))
	r.Detail = fmt.Sprintf("%s; %d vectors", detail, ran)
	if len(failures) > 0 {
		r.Detail = fmt.Sprintf(
			"%s; %d of %d vectors wrong; the first: %v",
			detail,
			len(failures),
			ran,
			failures[0],
		)
	}
	return r
}

func testSIMD() Result {
	const part = "kernel SIMD"
	b := cpu.New(0)
	info := map[string]string{
		"instructions": b.Instructions(),
		"threads":      strconv.Itoa(b.Threads()),
	}
	return testVectors(part, info["instructions"]+", "+info["threads"]+" threads", info, b)
}

// testGPUs returns one result per device. If there is no device, it returns one result with the
// reason.
func testGPUs(ctx context.Context) []Result {
	const part = "kernel CUDA"
	n, err := cuda.Count()
	if err != nil || n == 0 {
		r := Result{Part: part, Detail: "no device"}
		if err != nil {
			r.Detail = err.Error()
		}
		return []Result{r}
	}
	var out []Result
	for i := 0; i < n && ctx.Err() == nil; i++ {
		out = append(out, testGPU(fmt.Sprintf("%s %d", part, i), i))
	}
	return out
}

func testGPU(part string, ordinal int) Result {
	dev, err := cuda.Open(ordinal)
	if err != nil {
		return Result{Part: part, Detail: err.Error()}
	}
	info := map[string]string{
		"device": dev.Name(),
		"driver": "CUDA " + cudahost.VersionText(dev.Driver()),
	}
	detail := info["device"] + ", driver of " + info["driver"]
	if info["image"] = dev.Image(); info["image"] != "" {
		detail += ", image " + info["image"]
	}
	stream, err := dev.NewStream()
	if err != nil {
		return Result{Part: part, Detail: detail + ": " + err.Error(), Info: info}
	}
	defer dev.FreeStream(stream)
	return testVectors(part, detail, info, dev.Hosted(stream))
}
