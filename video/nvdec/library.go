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

// driver is what is used of libnvcuvid and of the device beside it. The tests have another one
// (fake_test.go): all that is above it is the same for both.
type driver interface {
	within(f func()) // for several calls in a row
	caps(c *caps) error
	// calls d's sequence, decode and show during parse
	newParser(p *parserParams, d *decoder) (uintptr, error)
	parse(parser uintptr, p *packet) error
	freeParser(parser, user uintptr)
	newDecoder(info *createInfo) (uintptr, error)
	decode(decoder uintptr, p *decodeParams) error
	status(decoder uintptr, surface int32) int32 // 0 where the driver does not say
	mapFrame(decoder uintptr, surface int32, p *mapParams) (addr uintptr, pitch int, err error)
	unmap(decoder, addr uintptr) error
	freeDecoder(decoder uintptr)

	newStream() (uintptr, error)
	freeStream(stream uintptr)
	copyOut(b []byte, from, stream uintptr) error // and waits
	host(n int) ([]byte, error)                   // page-locked memory
	freeHost(b []byte)

	// the device's own memory, on a stream
	alloc(n int) ([]byte, error)
	free(m []byte)
	copyIn(to, b []byte, stream uintptr) error // b is page-locked
	copyRows(to, from []uintptr, rows *cuda.Rows, stream uintptr) error
	clear(m []byte, stream uintptr) error
	wait(stream uintptr) error
	newEvent() (uintptr, error)
	freeEvent(event uintptr)
	record(event, stream uintptr) error
	reached(event uintptr) (bool, error) // what was on the stream when it was recorded is done
	frames(f *cuda.FrameForm) (frames, error)
}

// frames makes RGB of frames of one form: cuda.Frames.
type frames interface {
	Run(from []cuda.FramePlanes, out []uintptr, planes bool, stream uintptr) error
}

var libraries = []string{"libnvcuvid.so.1", "libnvcuvid.so"}

// functions are those of libnvcuvid, by address.
type functions struct {
	GetDecoderCaps, CreateVideoParser, ParseVideoData, DestroyVideoParser            uintptr
	CreateDecoder, DestroyDecoder, DecodePicture, MapVideoFrame64, UnmapVideoFrame64 uintptr
	GetDecodeStatus                                                                  uintptr
}

var load = sync.OnceValues(func() (*functions, error) { return loadFrom(libraries) })

func loadFrom(names []string) (*functions, error) {
	var library uintptr
	var err error
	for _, name := range names {
		if library, err = cudahost.Dlopen(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, robocache.Unsupported(opDecode, nil, "the driver's video library is not there: %s", err.Error()).
			WithHint("it comes with the NVIDIA driver; in containers, NVIDIA_DRIVER_CAPABILITIES has to name 'video'")
	}
	f := &functions{}
	table := reflect.ValueOf(f).Elem()
	for i := range table.NumField() {
		name := "cuvid" + table.Type().Field(i).Name
		p, err := cudahost.Dlsym(library, name)
		if err != nil {
			return nil, robocache.Unsupported(opDecode, nil, "driver too old").
				Expected("a driver with "+name, "").WithCause(err).WithHint("a newer NVIDIA driver")
		}
		*(*uintptr)(table.Field(i).Addr().UnsafePointer()) = p
	}
	return f, nil
}

// library is the driver that is real.
type library struct {
	f      *functions
	device *cuda.Device
	memory *cudahost.Host
	rows   *cuda.RowCopies
}

// address is that of p, for the driver; p lies on the heap: what holds it escapes through sink.
func address[T any](p *T) uintptr {
	if sink != nil {
		sink = unsafe.Pointer(p)
	}
	return uintptr(unsafe.Pointer(p))
}

// sink stays nil, which the compiler does not know.
var sink unsafe.Pointer

func (l *library) within(f func()) { l.device.Within(f) }

func (l *library) caps(c *caps) error {
	err := l.device.Call("tell what its engines decode", l.f.GetDecoderCaps, address(c))
	runtime.KeepAlive(c)
	return err
}

func (l *library) newParser(p *parserParams, d *decoder) (uintptr, error) {
	p.user = callbacks.add(d)
	p.sequence, p.decode, p.show = entries()[0], entries()[1], entries()[2]
	parser := new(uintptr)
	err := l.device.Call("make a parser", l.f.CreateVideoParser, address(parser), address(p))
	runtime.KeepAlive(p)
	if err != nil {
		callbacks.remove(p.user)
	}
	return *parser, err
}

func (l *library) parse(parser uintptr, p *packet) error {
	err := l.device.Call("parse a packet", l.f.ParseVideoData, parser, address(p))
	runtime.KeepAlive(p)
	return err
}

func (l *library) freeParser(parser, user uintptr) {
	_ = l.device.Call("give a parser back", l.f.DestroyVideoParser, parser)
	callbacks.remove(user)
}

func (l *library) newDecoder(info *createInfo) (uintptr, error) {
	decoder := new(uintptr)
	err := l.device.Call("make a decoder", l.f.CreateDecoder, address(decoder), address(info))
	runtime.KeepAlive(info)
	return *decoder, err
}

func (l *library) decode(decoder uintptr, p *decodeParams) error {
	return l.device.Call("decode a frame", l.f.DecodePicture, decoder, uintptr(unsafe.Pointer(p)))
}

func (l *library) status(decoder uintptr, surface int32) int32 {
	s := new(decodeStatus)
	if l.device.Call(
		"tell how a frame was decoded",
		l.f.GetDecodeStatus,
		decoder,
		uintptr(surface),
		address(s),
	) != nil {
		return 0
	}
	return s.status
}

func (l *library) mapFrame(
	decoder uintptr,
	surface int32,
	p *mapParams,
) (addr uintptr, pitch int, err error) {
	at, row := new(uintptr), new(uint32)
	err = l.device.Call(
		"give a decoded frame",
		l.f.MapVideoFrame64,
		decoder,
		uintptr(surface),
		address(at),
		address(row),
		address(p),
	)
	runtime.KeepAlive(p)
	return *at, int(*row), err
}

func (l *library) unmap(decoder, addr uintptr) error {
	return l.device.Call("take a decoded frame back", l.f.UnmapVideoFrame64, decoder, addr)
}

func (l *library) freeDecoder(decoder uintptr) {
	_ = l.device.Call("give a decoder back", l.f.DestroyDecoder, decoder)
}

func (l *library) newStream() (uintptr, error) { return l.device.NewUrgentStream() }
func (l *library) freeStream(stream uintptr)   { l.device.FreeStream(stream) }

func (l *library) copyOut(b []byte, from, stream uintptr) error {
	err := l.device.CopyOutAsync(b, from, stream)
	if waited := l.device.Wait(stream); err == nil {
		err = waited
	}
	return err
}

func (l *library) alloc(n int) ([]byte, error) {
	addr, err := l.device.Alloc(n)
	if err != nil {
		return nil, err
	}
	// an address of the device, which Go's collector does not know
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n), nil
}

func (l *library) free(m []byte) { l.device.Free(at(m)) }

func (l *library) copyIn(to, b []byte, stream uintptr) error {
	return l.device.CopyInAsync(at(to), b, stream)
}

func (l *library) copyRows(to, from []uintptr, rows *cuda.Rows, stream uintptr) error {
	return l.rows.Run(to, from, rows, stream)
}

func (l *library) clear(m []byte, stream uintptr) error {
	return l.device.ClearAsync(at(m), len(m), stream)
}
func (l *library) wait(stream uintptr) error  { return l.device.Wait(stream) }
func (l *library) newEvent() (uintptr, error) { return l.device.NewEvent() }
func (l *library) freeEvent(event uintptr)    { l.device.FreeEvent(event) }

func (l *library) record(
	event, stream uintptr,
) error {
	return l.device.Record(event, stream)
}
func (l *library) reached(event uintptr) (bool, error)      { return l.device.Reached(event) }
func (l *library) frames(f *cuda.FrameForm) (frames, error) { return l.device.PrepareFrames(f) }

func (l *library) host(n int) ([]byte, error) { return l.memory.Alloc(n) }
func (l *library) freeHost(b []byte)          { l.memory.Free(b) }

// callbacks are the decoders whose parsers call back, by the number that these carry.
var callbacks registry

type registry struct {
	mu   sync.Mutex
	next uintptr
	live map[uintptr]*decoder
}

func (r *registry) add(d *decoder) uintptr {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live == nil {
		r.live = map[uintptr]*decoder{}
	}
	r.next++
	r.live[r.next] = d
	return r.next
}

func (r *registry) remove(number uintptr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, number)
}

// call runs f with a decoder; a panic must not go through the driver.
func (r *registry) call(number uintptr, f func(d *decoder) int32) (result int32) {
	r.mu.Lock()
	d := r.live[number]
	r.mu.Unlock()
	if d == nil {
		return 0
	}
	if err := crash.Func(opDecode, func() error {
		result = f(d)
		return nil
	})(); err != nil {
		return d.failed(err)
	}
	return result
}

// entries are the functions that parsers call: three for the whole process.
var entries = sync.OnceValue(func() [3]uintptr {
	return [3]uintptr{
		cudahost.Callback(func(user uintptr, f *format) int32 {
			return callbacks.call(user, func(d *decoder) int32 { return d.sequence(f) })
		}),
		cudahost.Callback(func(user uintptr, p *decodeParams) int32 {
			return callbacks.call(user, func(d *decoder) int32 { return d.decode(p) })
		}),
		cudahost.Callback(func(user uintptr, s *shownInfo) int32 {
			return callbacks.call(user, func(d *decoder) int32 { return d.show(s) })
		}),
	}
})
