package cuda

import (
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Device runs operations. There is one value per device in the process. Safe for concurrent use.
type Device struct {
	launcher launcher
	gpu      *gpu // nil: the simulator
}

// devices holds the open devices by number.
var devices struct {
	mu   sync.Mutex
	open map[int]*Device
}

// Open returns the device with the driver's number, which depends on CUDA_VISIBLE_DEVICES. It
// retains the device's primary context, which frameworks use too, for the life of the process. If
// there is no driver, no device or no image for the chip, it returns an Unsupported error with the
// reason.
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
	d := &Device{launcher: g, gpu: g}
	if devices.open == nil {
		devices.open = map[int]*Device{}
	}
	devices.open[number] = d
	return d, nil
}

// Count returns the number of devices, or 0 and the reason if there is none.
func Count() (_ int, err error) {
	d, err := loadDriver()
	if err != nil {
		return 0, err
	}
	return d.countDevices()
}

// Prepare prepares an operation for later runs. A run can use any addresses of tensors with the
// same layout. A VoxelOp needs scratch memory: see VoxelScratch.
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
	return l.finishPrepare()
}

// Run prepares an operation and launches it on a stream. The stream is a CUstream of the device's
// primary context, 0 (legacy), 1 (legacy) or 2 (per thread). Run checks that the tensors are on the
// device, and returns when everything is launched. Callers that run an operation often should keep
// a Launch.
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
			return robocache.Misuse(l.op, robocache.Where{"tensor": i},
				"must be on the same device").
				Expected("a device address", "host memory")
		}
		if err := d.launcher.checkOwner(t.Addr); err != nil {
			return robocache.At(err, robocache.Where{"op": l.op, "tensor": i})
		}
		addrs[i] = t.Addr
	}
	return l.Run(addrs, stream)
}

// Call calls a function of one of the driver's libraries with the device's context current. The
// function must return a CUresult. what completes "could not", for example "make a decoder".
//
//go:uintptrescapes
func (d *Device) Call(what string, fn uintptr, args ...uintptr) error {
	return d.gpu.callDriver(what, fn, args...)
}

// Within runs f on one thread with the device's context current. A call in f takes a third of its
// usual time, because it does not have to make the context current.
func (d *Device) Within(f func()) {
	pushed, _ := d.gpu.enter() // an error here makes the calls in f fail too
	defer d.gpu.leave(pushed)
	f()
}

// String returns the name of the architecture, for example sm_90.
func (c chip) String() string { return fmt.Sprintf("sm_%d%d", c.major, c.minor) }
