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

// launcher runs kernels. It is implemented by a device and by the simulator of
// kernel/cuda/tests/sim. All host code above it is the same for both.
type launcher interface {
	launchCall(k *call, stream uintptr) error
	// waitStream blocks until the work on the stream is done, and returns the error of that work.
	waitStream(stream uintptr) error
	isCapturing(stream uintptr) bool // a graph is being captured, so waiting is not allowed
	prepareKernel(k *call) error     // loads the kernel, so that launchCall does not have to
	chipInfo() chip
	checkOwner(addr uintptr) error // an error if the device cannot access the address

	allocMemory(n int) (uintptr, error) // device memory
	freeMemory(addr uintptr)            // frees memory of allocMemory or uploadBytes
	// uploadBytes returns new device memory with these bytes. It works during the capture of a
	// graph too.
	uploadBytes(b []byte) (uintptr, error)
	newStream() (uintptr, error)
	freeStream(stream uintptr)
	clearMemory(addr uintptr, n int, stream uintptr) error // fills with zeros
	copyIn(to uintptr, b []byte, stream uintptr) error
	copyOut(b []byte, from uintptr, stream uintptr) error
}

// chip holds the properties by which host code chooses grids.
type chip struct {
	processors   int // multiprocessors
	major, minor int // compute capability
	shared       int // maximal bytes of shared memory in a block
	l2           int // bytes
	threads      int // maximal number on one multiprocessor
}

// call is one launch of a kernel.
type call struct {
	kernel string // its extern "C" name
	// grid is the number of blocks. It is one-dimensional, because grid.y and grid.z are limited to
	// 65,535. If it is 0, nothing is launched.
	grid   uint32
	block  uint32 // threads
	shared uint32 // dynamic shared memory, bytes
	// params holds the bytes of the only parameter, a struct (see paramsOf). It is aligned to 8
	// bytes if the struct has fields of 8 bytes.
	params []byte
	// early requests a programmatic dependent launch: the kernel may start before the previous
	// launch has ended, and waits for it by itself. It is ignored below sm_90.
	early  bool
	args   func() string // describes arguments in errors of a failed launch; may be nil
	device any           // launcher-specific state of a prepared kernel
}

// String describes the launch, for errors.
func (k *call) String() string {
	s := fmt.Sprintf("%s<<<%d, %d, %d>>>", k.kernel, k.grid, k.block, k.shared)
	if k.args != nil {
		s += "(" + k.args() + ")"
	}
	return s
}

// paramsOf returns the bytes of a parameter struct. The struct moves to the heap and both views
// share its memory, so host code can keep p and change fields between runs.
func paramsOf[T any](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), int(unsafe.Sizeof(*p)))
}

// binding means that addrs[tensor] is written to params[at:at+8] of a call.
type binding struct{ call, at, tensor int }

// Launch is a prepared operation: kernels, their parameters, and the places of tensor addresses in
// the parameters. It owns its tables in device memory, but no other memory and no stream. Runs do
// not wait. Safe for concurrent use. Keep a Launch to run an operation often. Tables that a graph
// captured are never freed, because there is no notification when a graph is destroyed.
type Launch struct {
	op       string // for errors
	launcher launcher
	calls    []call
	bindings []binding
	sizes    []uintptr              // element size of each tensor whose address Run takes
	number   map[*kernel.Tensor]int // index of a tensor in the addresses

	// adjust changes parameters and calls after the addresses are bound, for example the width of
	// vectors. The functions must not allocate.
	adjust []func(addrs []uintptr)
	// before and after, if not nil, run before and after the launches. They check values, so they
	// wait and cannot be captured.
	before, after func(addrs []uintptr, stream uintptr) error

	tables *deviceTables
	mu     sync.Mutex
}

// newLaunch returns an empty Launch of an operation. Addresses are in the order of its Tensors.
func newLaunch(on launcher, name string, op kernel.Op) *Launch {
	l := &Launch{op: name, launcher: on, number: map[*kernel.Tensor]int{}}
	for i, t := range op.Tensors() {
		l.number[t] = i
		l.sizes = append(l.sizes, uintptr(t.DType.Size()))
	}
	return l
}

// addCall adds a call and returns its number.
func (l *Launch) addCall(k call) int {
	l.calls = append(l.calls, k)
	return len(l.calls) - 1
}

// bind binds the address of a tensor to a field of the parameters of call n: each run writes the
// address to the field. A nil tensor is ignored.
func (l *Launch) bind(n int, field *uintptr, t *kernel.Tensor) {
	if t != nil {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(l.calls[n].params)))
		at := uintptr(unsafe.Pointer(field)) - start
		l.bindings = append(l.bindings, binding{n, int(at), l.number[t]})
	}
}

// deviceTables is the device memory of a Launch, for data that is too large for parameters. It is
// freed with the Launch.
type deviceTables struct {
	on       launcher
	addrs    []uintptr
	captured bool
}

// free frees the memory, unless a graph may still use it.
func (t *deviceTables) free() {
	if t.captured {
		return
	}
	for _, a := range t.addrs {
		t.on.freeMemory(a)
	}
	t.addrs = nil
}

// uploadTable copies bytes to device memory that lives as long as the Launch.
func (l *Launch) uploadTable(b []byte) (uintptr, error) {
	if len(b) == 0 {
		return 0, nil
	}
	addr, err := l.launcher.uploadBytes(b)
	if err != nil {
		return 0, robocache.At(err, robocache.Where{"op": l.op})
	}
	if l.tables == nil {
		l.tables = &deviceTables{on: l.launcher}
		runtime.AddCleanup(l, (*deviceTables).free, l.tables)
	}
	l.tables.addrs = append(l.tables.addrs, addr)
	return addr, nil
}

// Close frees the tables. Caller must make sure that nothing that was launched is running. Without
// Close, they are freed when the Launch is garbage collected.
func (l *Launch) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tables != nil {
		l.tables.free()
	}
	l.calls = nil
}

// Run launches the operation on the caller's stream. All inputs must be ready in stream order.
// Addresses are in the order of the operation's Tensors. Run does not allocate and does not wait,
// so a graph can capture it, unless the operation requests a check of values. If a launch fails,
// Run returns an error with kernel and arguments, and no error is pending afterwards.
func (l *Launch) Run(addrs []uintptr, stream uintptr) error {
	if len(addrs) != len(l.sizes) {
		return l.addressCountError(addrs)
	}
	for i, a := range addrs {
		if a%l.sizes[i] != 0 { // the device would fault, and the fault would break the context
			return l.alignmentError(i, a)
		}
	}
	if (l.before != nil || l.after != nil) && l.launcher.isCapturing(stream) {
		return robocache.Misuse(l.op, nil,
			"a check of values waits for the device, which a graph cannot capture").
			WithHint(
				"Pass %s, and an edge policy other than error",
				robocache.Option("validate", false),
			)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		return l.closedError()
	}
	if l.before != nil {
		if err := l.before(addrs, stream); err != nil {
			return err
		}
	}
	err := l.launchCalls(addrs, stream)
	if err == nil && l.after != nil {
		err = l.after(addrs, stream)
	}
	return err
}

// launchCalls writes the addresses to the parameters and launches the calls. Caller must hold l.mu.
func (l *Launch) launchCalls(addrs []uintptr, stream uintptr) error {
	if l.tables != nil && !l.tables.captured && l.launcher.isCapturing(stream) {
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
		if err := l.launcher.launchCall(k, stream); err != nil {
			return robocache.At(err, robocache.Where{"op": l.op})
		}
	}
	return nil
}

// closedError returns the error of a run after Close.
func (l *Launch) closedError() error {
	return robocache.Misuse(l.op, nil, "the launch is closed")
}

// addressCountError returns the error for a wrong number of addresses.
func (l *Launch) addressCountError(addrs []uintptr) error {
	return robocache.Misuse(l.op, nil, "addresses").
		Expected(fmt.Sprint(len(l.sizes)), fmt.Sprint(len(addrs)))
}

// alignmentError returns the error for the address of tensor i, which is not aligned to its
// elements.
func (l *Launch) alignmentError(i int, addr uintptr) error {
	return robocache.Unsupported(l.op, robocache.Where{"tensor": i},
		"address is no multiple of the element").
		Expected(fmt.Sprint("a multiple of ", l.sizes[i]), fmt.Sprintf("%#x", addr))
}

// finishPrepare loads the kernels and checks the parameters once, so that Run does not have to.
func (l *Launch) finishPrepare() (*Launch, error) {
	if l.calls == nil {
		l.calls = []call{} // not nil, because nil means closed
	}
	for i := range l.calls {
		k := &l.calls[i]
		if len(k.params) > maxParams {
			return nil, robocache.Unsupported(l.op, nil, "parameters of %s", k.kernel).
				Expected(fmt.Sprintf("at most %d bytes", maxParams), fmt.Sprint(len(k.params)))
		}
		if err := l.launcher.prepareKernel(k); err != nil {
			return nil, robocache.At(err, robocache.Where{"op": l.op})
		}
	}
	return l, nil
}

// maxParams is the maximal size of a kernel's parameters that every chip supports.
const maxParams = 4096
