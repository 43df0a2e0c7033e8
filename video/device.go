package video

import (
	"sync"

	"github.com/goatnote-inc/robocache"
)

// DeviceBackend is a Backend whose decoders run on the engines of a device.
type DeviceBackend interface {
	Backend
	// Engines is how many of them decode a codec; 0 where none does.
	Engines(codec Codec) int
}

var (
	deviceMu   sync.Mutex
	openDevice func(device int) (DeviceBackend, error)
)

// RegisterDevice makes open what OpenDevice calls. A package calls it from init.
func RegisterDevice(open func(device int) (DeviceBackend, error)) {
	deviceMu.Lock()
	defer deviceMu.Unlock()
	openDevice = open
}

// OpenDevice gives the video engines of a GPU, by the driver's number of it, or says why there are none.
func OpenDevice(device int) (DeviceBackend, error) {
	deviceMu.Lock()
	open := openDevice
	deviceMu.Unlock()
	if open == nil {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: opDecode, Msg: "no decoder for a GPU's engines is in this build", Hint: "import robocache/video/nvdec"}
	}
	return open(device)
}
