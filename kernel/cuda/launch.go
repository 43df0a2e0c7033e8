package cuda

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// launcher is what runs kernels: a device, or the simulator of kernel/cuda/tests/sim. All host code above it is the same for both.
type launcher interface {
	launch(k *call, stream uintptr) error
	wait(stream uintptr) error     // until what was launched on the stream is done; an error of it, if there was one
	capturing(stream uintptr) bool // a graph is being captured: nothing may be waited for
	flags() (*flags, error)        // words that kernels write and the host reads after wait
	prepare(k *call) error         // loads the kernel, so that launch does not
	sm() chip
	owns(addr uintptr) error // an error if the device cannot reach the address

	alloc(n int) (uintptr, error)     // device memory
	free(addr uintptr)                //
	upload(b []byte) (uintptr, error) // new memory with these bytes; also while a graph is being captured
	hostAlloc(n int) ([]byte, error)  // page-locked memory of the host
	hostFree(b []byte)
	newStream() (uintptr, error)
	freeStream(stream uintptr)
	clear(addr uintptr, n int, stream uintptr) error // zeros
	copyIn(to uintptr, b []byte, stream uintptr) error
	copyOut(b []byte, from uintptr, stream uintptr) error
	copy(to, from uintptr, n int, stream uintptr) error
}

// chip is what host code chooses grids by.
type chip struct {
	processors   int // multiprocessors
	major, minor int // compute capability
	shared       int // bytes of shared memory that a block may ask for
	l2           int // bytes
	threads      int // that one multiprocessor holds
}

// call is one launch of a kernel.
type call struct {
	kernel string        // extern "C" name
	grid   uint32        // blocks; one-dimensional (grid.y and grid.z end at 65,535). 0: nothing is launched
	block  uint32        // threads
	shared uint32        // dynamic shared memory, bytes
	params []byte        // the one struct that the kernel takes, as bytes; 8-aligned where it has 8-byte fields (see paramsOf)
	early  bool          // programmatic dependent launch: it may begin before the launch before it has ended; the kernel itself waits. Ignored below sm_90
	args   func() string // for the error of a failed launch; nil: none
	device any           // what the launcher keeps of a prepared kernel
}

// String says what is launched, for errors.
func (k *call) String() string {
	s := fmt.Sprintf("%s<<<%d, %d, %d>>>", k.kernel, k.grid, k.block, k.shared)
	if k.args != nil {
		s += "(" + k.args() + ")"
	}
	return s
}

// paramsOf gives the bytes of a parameter struct. The struct moves to the heap and is seen through both, so that host code may keep p and
// change fields between runs.
func paramsOf[T any](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), int(unsafe.Sizeof(*p)))
}

// place says that an address goes into the parameters of a call: addrs[tensor]+offset at params[at:at+8].
type place struct {
	call, at, tensor int
	offset           int64 // bytes
}

// Launch is a prepared operation: kernels, their parameters, and where the addresses of tensors go in these. It holds no memory
// of a device but its tables, and no stream. Runs may come from many goroutines; each is a launch, not a wait. Who prepares once and runs often
// keeps it. Tables that a graph captured are kept for the life of the process: nobody says when a graph goes.
type Launch struct {
	op      string // for errors
	on      launcher
	calls   []call
	places  []place
	tensors int // addresses that Run takes

	// adjust, if set, changes parameters and calls by the addresses, after they are in place: the width of vectors, say. It does not allocate.
	adjust func(calls []call, addrs []uintptr) error
	// after, if set, comes after the launches: a check that waits, and reads what kernels left in flags. It cannot be captured.
	after func(stream uintptr) error

	tables *tables
	mu     sync.Mutex
}

// tables is device memory of a Launch: what is too large for parameters. It goes with the Launch.
type tables struct {
	on       launcher
	addrs    []uintptr
	captured bool
}

func (t *tables) free() {
	if t.captured {
		return
	}
	for _, a := range t.addrs {
		t.on.free(a)
	}
	t.addrs = nil
}

// table puts bytes into device memory, for as long as the Launch lives.
func (l *Launch) table(b []byte) (uintptr, error) {
	if len(b) == 0 {
		return 0, nil
	}
	addr, err := l.on.upload(b)
	if err != nil {
		return 0, robocache.At(err, robocache.Where{"op": l.op})
	}
	if l.tables == nil {
		l.tables = &tables{on: l.on}
		runtime.AddCleanup(l, (*tables).free, l.tables)
	}
	l.tables.addrs = append(l.tables.addrs, addr)
	return addr, nil
}

// Close gives the tables back, when nothing that was launched is running. Without it they go when the Launch is collected.
func (l *Launch) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tables != nil {
		l.tables.free()
	}
	l.calls = nil
}

// Run launches the operation on a stream: that of the caller, where all its inputs are ready in stream order. Addresses stand in the order of
// the op's Tensors. It allocates nothing and waits for nothing, so that a graph can capture it, unless the op asks for a check of values.
// A launch that fails is reported here, by kernel and arguments, and leaves nothing pending.
func (l *Launch) Run(addrs []uintptr, stream uintptr) error {
	if len(addrs) != l.tensors {
		return l.misuse(addrs)
	}
	if l.after != nil && l.on.capturing(stream) {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: l.op, Msg: "a check of values waits for the device, which a graph cannot capture", Hint: "validate=False, and an edge policy other than error"}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.run(addrs, stream)
	if err == nil && l.after != nil {
		err = l.after(stream) // still locked: what adjust noted of this run is this run's
	}
	return err
}

func (l *Launch) run(addrs []uintptr, stream uintptr) error {
	if l.calls == nil {
		return l.closed()
	}
	if l.tables != nil && !l.tables.captured && l.on.capturing(stream) {
		l.tables.captured = true
	}
	for i := range l.places {
		p := &l.places[i]
		binary.LittleEndian.PutUint64(l.calls[p.call].params[p.at:], uint64(int64(addrs[p.tensor])+p.offset))
	}
	if l.adjust != nil {
		if err := l.adjust(l.calls, addrs); err != nil {
			return err
		}
	}
	for i := range l.calls {
		k := &l.calls[i]
		if k.grid == 0 {
			continue
		}
		if err := l.on.launch(k, stream); err != nil {
			return robocache.At(err, robocache.Where{"op": l.op})
		}
	}
	return nil
}

func (l *Launch) closed() error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: l.op, Msg: "the launch is closed"}
}

func (l *Launch) misuse(addrs []uintptr) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: l.op, Msg: "addresses", Want: fmt.Sprint(l.tensors), Got: fmt.Sprint(len(addrs))}
}

// prepared finishes a Launch: kernels are loaded, and parameters and places are looked at once, so that Run need not.
func (l *Launch) prepared() (*Launch, error) {
	if l.calls == nil {
		l.calls = []call{} // nothing to launch, but not closed
	}
	for i := range l.calls {
		k := &l.calls[i]
		if len(k.params) > maxParams {
			return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: l.op, Msg: "parameters of " + k.kernel, Want: fmt.Sprintf("at most %d bytes", maxParams), Got: fmt.Sprint(len(k.params))}
		}
		if err := l.on.prepare(k); err != nil {
			return nil, robocache.At(err, robocache.Where{"op": l.op})
		}
	}
	for _, p := range l.places {
		if p.call >= len(l.calls) || p.at+8 > len(l.calls[p.call].params) || p.tensor >= l.tensors {
			panic(fmt.Sprintf("%s: a place outside its parameters: %+v", l.op, p))
		}
	}
	return l, nil
}

// maxParams is what a kernel's parameters may take on every chip.
const maxParams = 4096
