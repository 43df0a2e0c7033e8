package nvdec

import (
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// driver is the part of libnvcuvid and of the CUDA driver that this package uses. library
// implements it. The tests have a simulated driver (fake_test.go), so that everything above this
// interface runs without a GPU. Safe for concurrent use, except that a parser and its decoder
// belong to one goroutine.
type driver interface {
	// withContext runs f with the device's CUDA context current on this thread. Calls inside f do
	// not switch the context again, which makes several calls in a row cheaper.
	withContext(f func())
	queryCaps(c *decodeCaps) error
	// parsePacket calls onSequence, onDecode and onDisplay of d, the decoder given to newParser.
	newParser(p *parserParams, d *decoder) (uintptr, error)
	parsePacket(parser uintptr, p *sourcePacket) error
	freeParser(parser, user uintptr)
	newDecoder(info *createInfo) (uintptr, error)
	decodePicture(decoder uintptr, p *decodeParams) error
	surfaceStatus(decoder uintptr, surface int32) int32 // 0 if the driver does not report it
	mapFrame(decoder uintptr, surface int32, p *mapParams) (addr uintptr, pitch int, err error)
	unmapFrame(decoder, addr uintptr) error
	freeDecoder(decoder uintptr)

	newStream() (uintptr, error)
	freeStream(stream uintptr)
	copyToHost(b []byte, from, stream uintptr) error // blocks until the copy is complete
	allocHost(n int) ([]byte, error)                 // returns page-locked memory
	freeHost(b []byte)

	// The methods below work on device memory, and are ordered by a CUDA stream.
	allocDevice(n int) ([]byte, error)
	freeDevice(m []byte)
	copyFromHost(to, b []byte, stream uintptr) error // b must be page-locked
	copyRows(to, from []uintptr, rows *cuda.Rows, stream uintptr) error
	clearDevice(m []byte, stream uintptr) error
	waitStream(stream uintptr) error
	newEvent() (uintptr, error)
	freeEvent(event uintptr)
	recordEvent(event, stream uintptr) error
	eventReached(
		event uintptr,
	) (bool, error) // reports whether the work before the event is complete
	prepareKernel(f *cuda.FrameForm) (frameKernel, error)
}

// frameKernel converts frames of one form to RGB. cuda.Frames implements it.
type frameKernel interface {
	Run(from []cuda.FramePlanes, out []uintptr, planes bool, stream uintptr) error
}

var libraries = []string{"libnvcuvid.so.1", "libnvcuvid.so"}

// driverFunctions holds the addresses of the functions of libnvcuvid. The field names are the
// function names without "cuvid".
type driverFunctions struct {
	GetDecoderCaps, CreateVideoParser, ParseVideoData, DestroyVideoParser            uintptr
	CreateDecoder, DestroyDecoder, DecodePicture, MapVideoFrame64, UnmapVideoFrame64 uintptr
	GetDecodeStatus                                                                  uintptr
}

var loadDriver = sync.OnceValues(func() (*driverFunctions, error) { return loadLibrary(libraries) })

// loadLibrary opens the first library of names that exists, and resolves its functions.
func loadLibrary(names []string) (*driverFunctions, error) {
	var library uintptr
	var err error
	for _, name := range names {
		if library, err = cudahost.Dlopen(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, robocache.Unsupported(opDecode, nil, "cannot open the NVIDIA video library: %s",
			err.Error()).
			WithHint(
				"install the NVIDIA driver; in a container, add 'video' to " +
					"NVIDIA_DRIVER_CAPABILITIES",
			)
	}
	f := &driverFunctions{}
	table := reflect.ValueOf(f).Elem()
	for i := range table.NumField() {
		name := "cuvid" + table.Type().Field(i).Name
		p, err := cudahost.Dlsym(library, name)
		if err != nil {
			return nil, robocache.Unsupported(opDecode, nil, "driver too old").
				Expected("a driver with "+name, "").
				WithCause(err).WithHint("install a newer NVIDIA driver")
		}
		*(*uintptr)(table.Field(i).Addr().UnsafePointer()) = p
	}
	return f, nil
}

// cuvidLibrary is the driver of a real GPU.
type cuvidLibrary struct {
	functions *driverFunctions
	device    *cuda.Device
	memory    *cudahost.Host
	rows      *cuda.RowCopies
}

// addressOf returns the address of p for a call of the driver. It forces p onto the heap: the
// compiler must assume that p escapes through sink.
func addressOf[T any](p *T) uintptr {
	if sink != nil {
		sink = unsafe.Pointer(p)
	}
	return uintptr(unsafe.Pointer(p))
}

// sink is always nil, but the compiler cannot know that.
var sink unsafe.Pointer

func (l *cuvidLibrary) withContext(f func()) { l.device.Within(f) }

func (l *cuvidLibrary) queryCaps(c *decodeCaps) error {
	err := l.device.Call("query what its engines decode", l.functions.GetDecoderCaps, addressOf(c))
	runtime.KeepAlive(c)
	return err
}

func (l *cuvidLibrary) newParser(p *parserParams, d *decoder) (uintptr, error) {
	p.user = callbacks.register(d)
	p.sequence, p.decode, p.show = parserEntries()[0], parserEntries()[1], parserEntries()[2]
	parser := new(uintptr)
	err := l.device.Call(
		"create a parser",
		l.functions.CreateVideoParser,
		addressOf(parser),
		addressOf(p),
	)
	runtime.KeepAlive(p)
	if err != nil {
		callbacks.unregister(p.user)
	}
	return *parser, err
}

func (l *cuvidLibrary) parsePacket(parser uintptr, p *sourcePacket) error {
	err := l.device.Call("parse a packet", l.functions.ParseVideoData, parser, addressOf(p))
	runtime.KeepAlive(p)
	return err
}

func (l *cuvidLibrary) freeParser(parser, user uintptr) {
	_ = l.device.Call("free a parser", l.functions.DestroyVideoParser, parser)
	callbacks.unregister(user)
}

func (l *cuvidLibrary) newDecoder(info *createInfo) (uintptr, error) {
	decoder := new(uintptr)
	err := l.device.Call(
		"create a decoder",
		l.functions.CreateDecoder,
		addressOf(decoder),
		addressOf(info),
	)
	runtime.KeepAlive(info)
	return *decoder, err
}

func (l *cuvidLibrary) decodePicture(decoder uintptr, p *decodeParams) error {
	return l.device.Call(
		"decode a frame",
		l.functions.DecodePicture,
		decoder,
		uintptr(unsafe.Pointer(p)),
	)
}

func (l *cuvidLibrary) surfaceStatus(decoder uintptr, surface int32) int32 {
	s := new(decodeStatus)
	err := l.device.Call(
		"query how a frame was decoded",
		l.functions.GetDecodeStatus,
		decoder,
		uintptr(surface),
		addressOf(s),
	)
	if err != nil {
		return 0
	}
	return s.status
}

func (l *cuvidLibrary) mapFrame(
	decoder uintptr,
	surface int32,
	p *mapParams,
) (addr uintptr, pitch int, err error) {
	at, row := new(uintptr), new(uint32)
	err = l.device.Call(
		"map a decoded frame",
		l.functions.MapVideoFrame64,
		decoder,
		uintptr(surface),
		addressOf(at),
		addressOf(row),
		addressOf(p),
	)
	runtime.KeepAlive(p)
	return *at, int(*row), err
}

func (l *cuvidLibrary) unmapFrame(decoder, addr uintptr) error {
	return l.device.Call("unmap a decoded frame", l.functions.UnmapVideoFrame64, decoder, addr)
}

func (l *cuvidLibrary) freeDecoder(decoder uintptr) {
	_ = l.device.Call("free a decoder", l.functions.DestroyDecoder, decoder)
}

func (l *cuvidLibrary) newStream() (uintptr, error) { return l.device.NewUrgentStream() }
func (l *cuvidLibrary) freeStream(stream uintptr)   { l.device.FreeStream(stream) }

func (l *cuvidLibrary) copyToHost(b []byte, from, stream uintptr) error {
	err := l.device.CopyOutAsync(b, from, stream)
	if waited := l.device.Wait(stream); err == nil {
		err = waited
	}
	return err
}

func (l *cuvidLibrary) allocDevice(n int) ([]byte, error) {
	addr, err := l.device.Alloc(n)
	if err != nil {
		return nil, err
	}
	// The slice wraps a device address. The garbage collector ignores addresses outside its heap.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n), nil
}

func (l *cuvidLibrary) freeDevice(m []byte) { l.device.Free(deviceAddress(m)) }

func (l *cuvidLibrary) copyFromHost(to, b []byte, stream uintptr) error {
	return l.device.CopyInAsync(deviceAddress(to), b, stream)
}

func (l *cuvidLibrary) copyRows(to, from []uintptr, rows *cuda.Rows, stream uintptr) error {
	return l.rows.Run(to, from, rows, stream)
}

func (l *cuvidLibrary) clearDevice(m []byte, stream uintptr) error {
	return l.device.ClearAsync(deviceAddress(m), len(m), stream)
}
func (l *cuvidLibrary) waitStream(stream uintptr) error { return l.device.Wait(stream) }
func (l *cuvidLibrary) newEvent() (uintptr, error)      { return l.device.NewEvent() }
func (l *cuvidLibrary) freeEvent(event uintptr)         { l.device.FreeEvent(event) }

func (l *cuvidLibrary) recordEvent(event, stream uintptr) error {
	return l.device.Record(event, stream)
}

func (l *cuvidLibrary) eventReached(event uintptr) (bool, error) { return l.device.Reached(event) }

func (l *cuvidLibrary) prepareKernel(f *cuda.FrameForm) (frameKernel, error) {
	return l.device.PrepareFrames(f)
}

func (l *cuvidLibrary) allocHost(n int) ([]byte, error) { return l.memory.Alloc(n) }
func (l *cuvidLibrary) freeHost(b []byte)               { l.memory.Free(b) }

// callbacks maps the user number of a parser to the decoder that its callbacks are for.
var callbacks decoderRegistry

type decoderRegistry struct {
	mu       sync.Mutex
	next     uintptr
	decoders map[uintptr]*decoder
}

// register adds a decoder and returns its number.
func (r *decoderRegistry) register(d *decoder) uintptr {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decoders == nil {
		r.decoders = map[uintptr]*decoder{}
	}
	r.next++
	r.decoders[r.next] = d
	return r.next
}

// unregister removes a decoder.
func (r *decoderRegistry) unregister(number uintptr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.decoders, number)
}

// callDecoder runs f with the decoder of a callback. A panic becomes an error of the decoder,
// because it must not unwind through the driver's C frames.
func (r *decoderRegistry) callDecoder(number uintptr, f func(d *decoder) int32) (result int32) {
	r.mu.Lock()
	d := r.decoders[number]
	r.mu.Unlock()
	if d == nil {
		return 0
	}
	if err := crash.Func(opDecode, func() error {
		result = f(d)
		return nil
	})(); err != nil {
		return d.failCallback(err)
	}
	return result
}

// parserEntries returns the C entry points for the three parser callbacks. They are created once
// per process, because callbacks cannot be freed.
var parserEntries = sync.OnceValue(func() [3]uintptr {
	return [3]uintptr{
		cudahost.Callback(func(user uintptr, f *streamFormat) int32 {
			return callbacks.callDecoder(user, func(d *decoder) int32 { return d.onSequence(f) })
		}),
		cudahost.Callback(func(user uintptr, p *decodeParams) int32 {
			return callbacks.callDecoder(user, func(d *decoder) int32 { return d.onDecode(p) })
		}),
		cudahost.Callback(func(user uintptr, s *shownInfo) int32 {
			return callbacks.callDecoder(user, func(d *decoder) int32 { return d.onDisplay(s) })
		}),
	}
})
