package jpegxl

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed" // the decoder
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

// decoder is libjxl's, from scripts/jpegxl-wasm.sh.
//
//go:embed data/decode.wasm.gz
var decoder []byte

// allocator is the function of decoder that all memory is taken by: a thousand times an image, and
// at least once for every frame, hidden or not, and every section of one. There the clock is looked
// at: a check at each jump, as the runtime offers it, makes an image take four times as long. It
// also is where the collector may stop the goroutine.
const allocator = 548

const (
	page     = 64 << 10
	maxPages = 8192     // 512 MiB a decoder
	keepSize = 64 << 20 // a decoder that took more is not kept
)

// engine holds the compiled decoder and those that are at rest.
type engine struct {
	rt      wazero.Runtime
	module  wazero.CompiledModule
	running chan struct{}

	mu   sync.Mutex
	rest []*instance
}

// instance is one decoder with its memory.
type instance struct {
	mod                  api.Module
	malloc, free, images api.Function
}

// started is the engine of the process.
var started struct {
	mu     sync.Mutex
	engine *engine
	err    error
}

// start returns the engine of the process. The first call compiles the decoder. A failure is
// remembered unless memory or address space was lacking, of which there may be more later.
func start() (*engine, error) {
	started.mu.Lock()
	defer started.mu.Unlock()
	if started.engine != nil || started.err != nil {
		return started.engine, started.err
	}
	e, err := compile()
	if errors.Is(err, robocache.ErrResourceLimit) {
		return nil, err
	}
	started.engine, started.err = e, err
	return e, err
}

// startError returns the error of a decoder that cannot be compiled. cause is what wazero returned,
// or what it panicked with: it maps memory for machine code and panics if the system refuses.
func startError(cause any) error {
	err, ok := cause.(error)
	if ok && errors.Is(err, syscall.ENOMEM) {
		return robocache.ResourceLimit(op, nil, "no address space for the decoder").WithCause(err).
			WithHint("Raise the limit of the process (ulimit -v).")
	}
	return robocache.Unsupported(op, nil, "the decoder does not start here: %v", cause)
}

// compile compiles the decoder.
func compile() (e *engine, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = startError(r)
		}
	}()
	r, err := gzip.NewReader(bytes.NewReader(decoder))
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
					return clock{}
				}
				return nil
			},
		),
	)
	rt := wazero.NewRuntimeWithConfig(
		ctx,
		wazero.NewRuntimeConfig().WithMemoryLimitPages(maxPages).WithDebugInfoEnabled(false),
	)
	const badFile = 8 // what it imports, for messages of its library: files that are not there
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
	return &engine{rt: rt, module: m, running: make(chan struct{}, runtime.GOMAXPROCS(0))}, nil
}

// clock ends a decoder whose context is done.
type clock struct{}

func (clock) Before(
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
func (clock) After(context.Context, api.Module, api.FunctionDefinition, []uint64) {}
func (clock) Abort(context.Context, api.Module, api.FunctionDefinition, error)    {}

// take waits for a core, and gives a decoder.
func (e *engine) take(ctx context.Context) (*instance, error) {
	select {
	case e.running <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	e.mu.Lock()
	if n := len(e.rest); n > 0 {
		in := e.rest[n-1]
		e.rest = e.rest[:n-1]
		e.mu.Unlock()
		return in, nil
	}
	e.mu.Unlock()
	mod, err := e.rt.InstantiateModule(
		context.Background(),
		e.module,
		wazero.NewModuleConfig().WithName(""),
	)
	if err != nil {
		<-e.running
		return nil, robocache.ResourceLimit(op, nil, "no memory for a decoder").WithCause(err)
	}
	return &instance{
		mod,
		mod.ExportedFunction("malloc"),
		mod.ExportedFunction("free"),
		mod.ExportedFunction("decode"),
	}, nil
}

// give takes a decoder back. One that failed may be in any state: it is not used again.
func (e *engine) give(in *instance, good bool) {
	defer func() { <-e.running }()
	if !good || in.mod.Memory().Size() > keepSize {
		in.mod.Close(context.Background())
		return
	}
	e.mu.Lock()
	e.rest = append(e.rest, in)
	e.mu.Unlock()
}

// call calls a function of the decoder.
func (in *instance) call(ctx context.Context, f api.Function, args ...uint64) (uint64, error) {
	r, err := f.Call(ctx, args...)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, ctx.Err()
	case err != nil && in.full():
		return 0, tooLarge()
	case err != nil:
		// The stack of the decoder says nothing to a reader.
		return 0, malformed("the decoder stopped")
	case len(r) == 0:
		return 0, nil
	}
	return r[0], nil
}

func (in *instance) full() bool { return in.mod.Memory().Size() > (maxPages-64)*page }

func tooLarge() error {
	return robocache.ResourceLimit(
		op,
		nil,
		"the image takes more than %d MiB of memory to decode",
		maxPages*page>>20,
	)
}

// room takes memory in the decoder.
func (in *instance) room(ctx context.Context, n int64) (uint64, error) {
	p := uint64(0)
	if n < maxPages*page {
		var err error
		if p, err = in.call(ctx, in.malloc, uint64(n)); err != nil {
			return 0, err
		}
	}
	if p == 0 {
		return 0, tooLarge()
	}
	return p, nil
}

// decode runs the decoder: once for the header, once for the pixels.
func (in *instance) decode(ctx context.Context, dst, src []byte, size int) (err error) {
	mem := in.mod.Memory()
	from, err := in.room(ctx, int64(len(src)))
	if err != nil {
		return err
	}
	mem.Write(uint32(from), src)
	// Four words of info, and behind them a delay a frame: a stream of more than maxFrames writes
	// over memory of the decoder, which is not used again then.
	head, err := in.room(ctx, 16+4*maxFrames)
	if err != nil {
		return err
	}
	run := func(only, all, out uint64) (bool, error) {
		call, err := in.call(
			ctx,
			in.images,
			from,
			uint64(len(src)),
			only,
			all,
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
		return call != 0, nil
	}
	result, err := run(1, 0, 0)
	if err != nil {
		return err
	}
	if !result {
		return malformed("no JPEG XL, or cut before its images")
	}
	i := in.info(head)
	if i.frames > maxFrames {
		return robocache.ResourceLimit(op, nil, "more than %d frames", maxFrames)
	}
	if int(i.bits) != 8*size {
		return robocache.Unsupported(op, nil, "images of %d bits a value", i.bits).
			Expected(fmt.Sprintf("integers of %d bits", 8*size), "")
	}
	channels, err := i.channels(len(dst) / size)
	if err != nil {
		return err
	}
	pixels := int64(len(dst) / channels)
	out, err := in.room(ctx, 4*pixels)
	if err != nil {
		return err
	}
	all := uint64(0)
	if i.frames > 1 {
		all = 1
	}
	resultValue, err := run(0, all, out)
	if err != nil {
		return err
	}
	if !resultValue {
		if in.full() {
			return tooLarge()
		}
		return malformed("cut or damaged")
	}
	rgba, ok := mem.Read(uint32(out), uint32(4*pixels))
	if !ok || in.info(head) != i {
		return malformed("cut or damaged")
	}
	if err := pick(dst, rgba, channels, size); err != nil {
		return err
	}
	for _, p := range []uint64{out, head, from} {
		if _, err := in.call(ctx, in.free, p); err != nil {
			return err
		}
	}
	return nil
}

func (in *instance) info(at uint64) info {
	word := func(k uint32) uint32 { v, _ := in.mod.Memory().ReadUint32Le(uint32(at) + 4*k); return v }
	return info{word(0), word(1), word(2), word(3)}
}
