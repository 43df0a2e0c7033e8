package cuda

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// launcher is what runs kernels: a device, or the simulator of kernel/cuda/tests/sim. All host code
// above it is the same for both.
type launcher interface {
	launch(k *call, stream uintptr) error
	// until what was launched on the stream is done; an error of it, if there was one
	wait(stream uintptr) error
	capturing(stream uintptr) bool // a graph is being captured: nothing may be waited for
	prepare(k *call) error         // loads the kernel, so that launch does not
	sm() chip
	owns(addr uintptr) error // an error if the device cannot reach the address

	alloc(n int) (uintptr, error) // device memory
	free(addr uintptr)            //
	// new memory with these bytes; also while a graph is being captured
	upload(b []byte) (uintptr, error)
	newStream() (uintptr, error)
	freeStream(stream uintptr)
	clear(addr uintptr, n int, stream uintptr) error // zeros
	copyIn(to uintptr, b []byte, stream uintptr) error
	copyOut(b []byte, from uintptr, stream uintptr) error
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
	kernel string // extern "C" name
	// blocks; one-dimensional (grid.y and grid.z end at 65,535). 0: nothing is launched
	grid   uint32
	block  uint32 // threads
	shared uint32 // dynamic shared memory, bytes
	// the one struct that the kernel takes, as bytes; 8-aligned where it has 8-byte fields (see
	// paramsOf)
	params []byte
	// programmatic dependent launch: it may begin before the launch before it has ended; the kernel
	// itself waits. Ignored below sm_90
	early  bool
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

// paramsOf gives the bytes of a parameter struct. The struct moves to the heap and is seen through
// both, so that host code may keep p and change fields between runs.
func paramsOf[T any](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), int(unsafe.Sizeof(*p)))
}

// binding says that an address goes into the parameters of a call: addrs[tensor] at
// params[at:at+8].
type binding struct{ call, at, tensor int }

// Launch is a prepared operation: kernels, their parameters, and where the addresses of tensors go
// in these. It holds no memory of a device but its tables, and no stream. Runs may come from many
// goroutines; each is a launch, not a wait. Who prepares once and runs often keeps it. Tables that
// a graph captured are kept for the life of the process: nobody says when a graph goes.
type Launch struct {
	op       string // for errors
	on       launcher
	calls    []call
	bindings []binding
	sizes    []uintptr              // bytes of an element of each tensor whose address Run takes
	number   map[*kernel.Tensor]int // which of the addresses a tensor has

	// adjust changes parameters and calls by the addresses, after they are bound: the width of
	// vectors, say. It does not allocate.
	adjust []func(addrs []uintptr)
	// before and after, if set, come before and after the launches: checks of values, which wait.
	// They cannot be captured.
	before, after func(addrs []uintptr, stream uintptr) error

	tables *tables
	mu     sync.Mutex
}

// newLaunch begins the Launch of an op: addresses stand in the order of its Tensors.
func newLaunch(on launcher, name string, op kernel.Op) *Launch {
	l := &Launch{op: name, on: on, number: map[*kernel.Tensor]int{}}
	for i, t := range op.Tensors() {
		l.number[t], l.sizes = i, append(l.sizes, uintptr(t.DType.Size()))
	}
	return l
}

// add adds a call; it gives its number.
func (l *Launch) add(k call) int {
	l.calls = append(l.calls, k)
	return len(l.calls) - 1
}

// bind has a tensor's address go into a field of a call's parameters; nil has none.
func (l *Launch) bind(n int, field *uintptr, t *kernel.Tensor) {
	if t != nil {
		at := uintptr(
			unsafe.Pointer(field),
		) - uintptr(
			unsafe.Pointer(unsafe.SliceData(l.calls[n].params)),
		)
		l.bindings = append(l.bindings, binding{n, int(at), l.number[t]})
	}
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

// Close gives the tables back, when nothing that was launched is running. Without it they go when
// the Launch is collected.
func (l *Launch) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tables != nil {
		l.tables.free()
	}
	l.calls = nil
}

// Run launches the operation on a stream: that of the caller, where all its inputs are ready in
// stream order. Addresses stand in the order of the op's Tensors. It allocates nothing and waits
// for nothing, so that a graph can capture it, unless the op asks for a check of values. A launch
// that fails is reported here, by kernel and arguments, and leaves nothing pending.
func (l *Launch) Run(addrs []uintptr, stream uintptr) error {
	if len(addrs) != len(l.sizes) {
		return l.misuse(addrs)
	}
	for i, a := range addrs {
		if a%l.sizes[i] != 0 { // a device faults there, and the fault would end the context
			return l.misaligned(i, a)
		}
	}
	if (l.before != nil || l.after != nil) && l.on.capturing(stream) {
		return robocache.Misuse(l.op, nil, "a check of values waits for the device, which a graph cannot capture").
			WithHint("Pass %s, and an edge policy other than error", robocache.Option("validate", false))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		return l.closed()
	}
	if l.before != nil {
		if err := l.before(addrs, stream); err != nil {
			return err
		}
	}
	err := l.run(addrs, stream)
	if err == nil && l.after != nil {
		err = l.after(addrs, stream)
	}
	return err
}

func (l *Launch) run(addrs []uintptr, stream uintptr) error {
	if l.tables != nil && !l.tables.captured && l.on.capturing(stream) {
		l.tables.captured = true
	}
	for _, b := range l.bindings {
		binary.LittleEndian.PutUint64(l.calls[b.call].params[b.at:], uint64(addrs[b.tensor]))
	}
	for _, f := range l.adjust {
		f(addrs)
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
	return robocache.Misuse(l.op, nil, "the launch is closed")
}

func (l *Launch) misuse(addrs []uintptr) error {
	return robocache.Misuse(l.op, nil, "addresses").
		Expected(fmt.Sprint(len(l.sizes)), fmt.Sprint(len(addrs)))
}

func (l *Launch) misaligned(i int, addr uintptr) error {
	return robocache.Unsupported(l.op, robocache.Where{"tensor": i}, "address is no multiple of the element").
		Expected(fmt.Sprint("a multiple of ", l.sizes[i]), fmt.Sprintf("%#x", addr))
}

// prepared finishes a Launch: kernels are loaded, and parameters are looked at once, so that Run
// need not.
func (l *Launch) prepared() (*Launch, error) {
	if l.calls == nil {
		l.calls = []call{} // nothing to launch, but not closed
	}
	for i := range l.calls {
		k := &l.calls[i]
		if len(k.params) > maxParams {
			return nil, robocache.Unsupported(l.op, nil, "parameters of %s", k.kernel).
				Expected(fmt.Sprintf("at most %d bytes", maxParams), fmt.Sprint(len(k.params)))
		}
		if err := l.on.prepare(k); err != nil {
			return nil, robocache.At(err, robocache.Where{"op": l.op})
		}
	}
	return l, nil
}

// maxParams is what a kernel's parameters may take on every chip.
const maxParams = 4096
