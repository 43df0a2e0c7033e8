package jpegxl

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed" // embeds the decoder
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"syscall"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/goatnote-inc/robocache"
)

// decoderWasm is libjxl, compiled by scripts/jpegxl-wasm.sh.
//
//go:embed data/decode.wasm.gz
var decoderWasm []byte

// allocator is the index of the function of decoder that allocates all memory. It is called about a
// thousand times per image, and at least once for every frame, hidden or not, and every section of
// one. The time limit is checked there. The runtime's own check, at each jump, makes decoding four
// times slower. The garbage collector can also stop the goroutine there.
const allocator = 548

const (
	pageBytes    = 64 << 10
	maxPages     = 8192     // 512 MiB per decoder
	maxIdleBytes = 64 << 20 // a decoder with more memory is not kept
)

// engine holds the compiled decoder and the idle instances. Safe for concurrent use.
type engine struct {
	runtime wazero.Runtime
	module  wazero.CompiledModule
	running chan struct{}

	mu   sync.Mutex
	idle []*instance
}

// instance is one decoder with its memory. It is used by one goroutine at a time.
type instance struct {
	module               api.Module
	malloc, free, images api.Function
}

// processEngine is the engine of the process.
var processEngine struct {
	mu     sync.Mutex
	engine *engine
	err    error
}

// startEngine returns the engine of the process. The first call compiles the decoder. A failure is
// remembered, except a lack of memory or address space, which may be temporary.
func startEngine() (*engine, error) {
	processEngine.mu.Lock()
	defer processEngine.mu.Unlock()
	if processEngine.engine != nil || processEngine.err != nil {
		return processEngine.engine, processEngine.err
	}
	e, err := compileDecoder()
	if errors.Is(err, robocache.ErrResourceLimit) {
		return nil, err
	}
	processEngine.engine, processEngine.err = e, err
	return e, err
}

// startError returns the error of a decoder that cannot be compiled. cause is the error that wazero
// returned, or the value of its panic: it maps memory for machine code and panics if the system
// refuses.
func startError(cause any) error {
	err, ok := cause.(error)
	if ok && errors.Is(err, syscall.ENOMEM) {
		return robocache.ResourceLimit(
			opDecode,
			nil,
			"no address space for the decoder",
		).WithCause(err).
			WithHint("Raise the limit of the process (ulimit -v).")
	}
	return robocache.Unsupported(opDecode, nil, "the decoder does not start here: %v", cause)
}

// compileDecoder unpacks and compiles the decoder, with a check of the time limit at each call of
// allocator.
func compileDecoder() (e *engine, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = startError(r)
		}
	}()
	r, err := gzip.NewReader(bytes.NewReader(decoderWasm))
	var code []byte
	if err == nil {
		code, err = io.ReadAll(r)
	}
	if err != nil {
		return nil, err
	}
	ctx := experimental.WithFunctionListenerFactory(
		context.Background(),
		experimental.FunctionListenerFactoryFunc(
			func(f api.FunctionDefinition) experimental.FunctionListener {
				if f.Index() == allocator {
					return deadlineCheck{}
				}
				return nil
			},
		),
	)
	rt := wazero.NewRuntimeWithConfig(
		ctx,
		wazero.NewRuntimeConfig().WithMemoryLimitPages(maxPages).WithDebugInfoEnabled(false),
	)
	const badFile = 8 // the decoder imports these functions for messages; there are no files
	if _, err := rt.NewHostModuleBuilder("wasi_snapshot_preview1").
		NewFunctionBuilder().WithFunc(func(int32) int32 { return badFile }).Export("fd_close").
		NewFunctionBuilder().
		WithFunc(func(int32, int32, int32, int32) int32 { return badFile }).Export("fd_write").
		Instantiate(ctx); err != nil {
		return nil, err
	}
	m, err := rt.CompileModule(ctx, code)
	if err != nil {
		return nil, startError(err)
	}
	return &engine{runtime: rt, module: m, running: make(chan struct{}, runtime.GOMAXPROCS(0))}, nil
}

// deadlineCheck stops a decoder whose context is done.
type deadlineCheck struct{}

func (deadlineCheck) Before(
	ctx context.Context,
	_ api.Module,
	_ api.FunctionDefinition,
	_ []uint64,
	_ experimental.StackIterator,
) {
	if err := ctx.Err(); err != nil {
		panic(err)
	}
}
func (deadlineCheck) After(context.Context, api.Module, api.FunctionDefinition, []uint64) {}
func (deadlineCheck) Abort(context.Context, api.Module, api.FunctionDefinition, error)    {}

// acquireInstance waits for a core and returns a decoder.
func (e *engine) acquireInstance(ctx context.Context) (*instance, error) {
	select {
	case e.running <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	e.mu.Lock()
	if n := len(e.idle); n > 0 {
		in := e.idle[n-1]
		e.idle = e.idle[:n-1]
		e.mu.Unlock()
		return in, nil
	}
	e.mu.Unlock()
	mod, err := e.runtime.InstantiateModule(
		context.Background(),
		e.module,
		wazero.NewModuleConfig().WithName(""),
	)
	if err != nil {
		<-e.running
		return nil, robocache.ResourceLimit(opDecode, nil, "no memory for a decoder").WithCause(err)
	}
	return &instance{
		mod,
		mod.ExportedFunction("malloc"),
		mod.ExportedFunction("free"),
		mod.ExportedFunction("decode"),
	}, nil
}

// releaseInstance makes a decoder idle. A decoder that failed is closed, because its state is
// unknown.
func (e *engine) releaseInstance(in *instance, good bool) {
	defer func() { <-e.running }()
	if !good || in.module.Memory().Size() > maxIdleBytes {
		in.module.Close(context.Background())
		return
	}
	e.mu.Lock()
	e.idle = append(e.idle, in)
	e.mu.Unlock()
}

// callFunction calls a function of the decoder.
func (in *instance) callFunction(
	ctx context.Context,
	f api.Function,
	args ...uint64,
) (uint64, error) {
	r, err := f.Call(ctx, args...)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, ctx.Err()
	case err != nil && in.isFull():
		return 0, outOfMemory()
	case err != nil:
		// err is dropped, because it holds only the WebAssembly stack
		return 0, malformedStream("the decoder stopped")
	case len(r) == 0:
		return 0, nil
	}
	return r[0], nil
}

// isFull reports whether the decoder's memory is nearly at its limit.
func (in *instance) isFull() bool { return in.module.Memory().Size() > (maxPages-64)*pageBytes }

// outOfMemory returns the error for an image that exceeds the memory limit.
func outOfMemory() error {
	return robocache.ResourceLimit(
		opDecode,
		nil,
		"the image takes more than %d MiB of memory to decode",
		maxPages*pageBytes>>20,
	)
}

// allocate allocates memory in the decoder.
func (in *instance) allocate(ctx context.Context, n int64) (uint64, error) {
	p := uint64(0)
	if n < maxPages*pageBytes {
		var err error
		if p, err = in.callFunction(ctx, in.malloc, uint64(n)); err != nil {
			return 0, err
		}
	}
	if p == 0 {
		return 0, outOfMemory()
	}
	return p, nil
}

// decodeImages runs the decoder twice: for the header, and for the pixels.
func (in *instance) decodeImages(ctx context.Context, dst, src []byte, size int) (err error) {
	mem := in.module.Memory()
	from, err := in.allocate(ctx, int64(len(src)))
	if err != nil {
		return err
	}
	mem.Write(uint32(from), src)
	// Four words of info, followed by one delay per frame. A stream with more than maxFrames frames
	// overwrites the decoder's memory; that decoder is not reused.
	head, err := in.allocate(ctx, 16+4*maxFrames)
	if err != nil {
		return err
	}
	// run calls the decoder. It reads only the header, or decodes one or all frames to out. ok is
	// false if the data is damaged.
	run := func(onlyHeader, allFrames, out uint64) (ok bool, err error) {
		result, err := in.callFunction(
			ctx,
			in.images,
			from,
			uint64(len(src)),
			onlyHeader,
			allFrames,
			head,
			head+4,
			head+8,
			head+12,
			head+16,
			out,
		)
		if err != nil {
			return false, err
		}
		return result != 0, nil
	}
	ok, err := run(1, 0, 0)
	if err != nil {
		return err
	}
	if !ok {
		return malformedStream("the data is not JPEG XL, or it is truncated before the images")
	}
	i := in.readInfo(head)
	if i.frames > maxFrames {
		return robocache.ResourceLimit(opDecode, nil, "more than %d frames", maxFrames)
	}
	if int(i.bits) != 8*size {
		return robocache.Unsupported(opDecode, nil, "images of %d bits per value", i.bits).
			Expected(fmt.Sprintf("integers of %d bits", 8*size), "")
	}
	channels, err := i.channelsFor(len(dst) / size)
	if err != nil {
		return err
	}
	pixels := int64(len(dst) / channels)
	out, err := in.allocate(ctx, 4*pixels)
	if err != nil {
		return err
	}
	all := uint64(0)
	if i.frames > 1 {
		all = 1
	}
	ok, err = run(0, all, out)
	if err != nil {
		return err
	}
	if !ok {
		if in.isFull() {
			return outOfMemory()
		}
		return malformedStream("the stream is truncated or damaged")
	}
	rgba, ok := mem.Read(uint32(out), uint32(4*pixels))
	if !ok || in.readInfo(head) != i {
		return malformedStream("the stream is truncated or damaged")
	}
	if err := pickChannels(dst, rgba, channels, size); err != nil {
		return err
	}
	for _, p := range []uint64{out, head, from} {
		if _, err := in.callFunction(ctx, in.free, p); err != nil {
			return err
		}
	}
	return nil
}

// readInfo reads the description of the images at an address of the decoder.
func (in *instance) readInfo(at uint64) streamInfo {
	word := func(k uint32) uint32 {
		v, _ := in.module.Memory().ReadUint32Le(uint32(at) + 4*k)
		return v
	}
	return streamInfo{word(0), word(1), word(2), word(3)}
}
