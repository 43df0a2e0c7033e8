package cuda

import (
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Device runs operations. One value stands for a device in the whole process; calls may come from
// many goroutines.
type Device struct {
	on  launcher
	gpu *gpu // nil: the simulator
}

var devices struct {
	mu   sync.Mutex
	open map[int]*Device
}

// Open gives a device by the driver's number of it (CUDA_VISIBLE_DEVICES counts). It takes the
// device's primary context, the one that frameworks use too, and keeps it for the life of the
// process. Without a driver, a device or an image for the chip the error is Unsupported and says
// which.
func Open(number int) (_ *Device, err error) {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if d := devices.open[number]; d != nil {
		return d, nil
	}
	g, err := openGPU(number)
	if err != nil {
		return nil, err
	}
	d := &Device{on: g, gpu: g}
	if devices.open == nil {
		devices.open = map[int]*Device{}
	}
	devices.open[number] = d
	return d, nil
}

// Count is the number of devices; 0 and the reason where there is none.
func Count() (_ int, err error) {
	d, err := load()
	if err != nil {
		return 0, err
	}
	return d.count()
}

// Prepare makes a Launch of an operation, to run on any addresses of tensors of its form. A VoxelOp
// brings scratch memory: see VoxelScratch.
func (d *Device) Prepare(op kernel.Op) (_ *Launch, err error) {
	if err := op.Check(); err != nil {
		return nil, err
	}
	var l *Launch
	switch op := op.(type) {
	case *kernel.FuseOp:
		if l, err = d.prepareFuse(op); err != nil {
			return nil, err
		}
	case *kernel.FuseGradOp:
		if l, err = d.prepareFuseGrad(op); err != nil {
			return nil, err
		}
	case *kernel.ApplyOp:
		if l, err = d.prepareApply(op); err != nil {
			return nil, err
		}
	case *kernel.ImageOp:
		if l, err = d.prepareImages(op); err != nil {
			return nil, err
		}
	case *kernel.VoxelOp:
		if l, err = d.prepareVoxelize(op); err != nil {
			return nil, err
		}
	case *kernel.DepthOp:
		if l, err = d.prepareUnproject(op); err != nil {
			return nil, err
		}
	case *kernel.TSDFOp:
		if l, err = d.prepareIntegrate(op); err != nil {
			return nil, err
		}
	default:
		return nil, robocache.Unsupported("op", nil, "no CUDA kernel for %T", op).
			WithHint("Pass %s, or tensors of the host", robocache.Option("backend", "pytorch"))
	}
	return l.prepared()
}

// Run prepares an operation and launches it on a stream: a CUstream of the device's primary
// context, 0 (legacy), 1 (legacy) or 2 (per thread). It proves that the tensors lie on the device,
// and returns when all is launched. Who calls often keeps a Launch.
func (d *Device) Run(op kernel.Op, stream uintptr) error {
	l, err := d.Prepare(op)
	if err != nil {
		return err
	}
	tensors := op.Tensors()
	addrs := make([]uintptr, len(tensors))
	for i, t := range tensors {
		if t.Len() == 0 {
			continue
		}
		if t.Addr == 0 {
			return robocache.Misuse(l.op, robocache.Where{"tensor": i}, "must be on the same device").
				Expected("a device address", "host memory")
		}
		if err := d.on.owns(t.Addr); err != nil {
			return robocache.At(err, robocache.Where{"op": l.op, "tensor": i})
		}
		addrs[i] = t.Addr
	}
	return l.Run(addrs, stream)
}

// Call calls a function of one of the driver's libraries, which makes its result a CUresult, with
// the device's context current. What: "make a decoder".
//
//go:uintptrescapes
func (d *Device) Call(what string, fn uintptr, args ...uintptr) error {
	return d.gpu.do(what, fn, args...)
}

// Within runs f with the device's context current, on one thread: calls in f find it there, which
// takes a third of the time that making it current for each does.
func (d *Device) Within(f func()) {
	pushed, _ := d.gpu.enter() // what fails, fails in f too
	defer d.gpu.leave(pushed)
	f()
}

func (c chip) String() string { return fmt.Sprintf("sm_%d%d", c.major, c.minor) }
