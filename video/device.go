package video

import (
	"sync"

	"github.com/goatnote-inc/robocache"
)

// DeviceBackend is a Backend whose decoders run on the video engines of a device.
type DeviceBackend interface {
	Backend
	// Engines returns the number of engines that decode a codec, or 0.
	Engines(codec Codec) int
}

// DeviceMemory is the memory of a DeviceBackend. Slices of device memory wrap device addresses, so
// the host must not read or write their bytes. All operations, including conversions of frames, run
// in the order of the calls. They are complete after Wait. Safe for concurrent use.
type DeviceMemory interface {
	Number() int // returns the driver's number of the device
	Alloc(n int) ([]byte, error)
	Free(m []byte)
	Upload(dst, src []byte) error // the caller may change src when Upload returns
	// UploadPlanes copies planes of 8-bit 4:2:0 from the host to dst, which has info's Bytes. The
	// result has the layout that DeviceFrame.KeepPlanes writes.
	UploadPlanes(info PlaneInfo, dst, planes []byte) error
	Copy(dst, src [][]byte) error // all pieces must have the same size
	Clear(dst []byte) error
	// Converts reports whether the device converts frames of this form to spec, bit-identical to
	// the host.
	Converts(info PlaneInfo, spec *Spec) bool
	// ConvertKept converts planes that DeviceFrame.KeepPlanes wrote. All planes must have the form
	// info.
	ConvertKept(info PlaneInfo, planes [][]byte, spec *Spec, dst [][]byte) error
	Wait() error
}

// DeviceFrame is a Frame in device memory.
type DeviceFrame interface {
	PlanarFrame
	// ConvertThere writes the frame to device memory. It fails if DeviceMemory.Converts is false.
	ConvertThere(spec *Spec, dst []byte) error
	// KeepPlanes writes the planes to dst: luma, then interleaved chroma. dst is device memory and
	// has the size that PlaneInfo states in Bytes.
	KeepPlanes(dst []byte) error
}

// Formula describes the integer arithmetic with which the host converts 4:2:0 planes to 8-bit RGB,
// so that a device can produce identical bytes. video/ffmpeg's planar.c and scale.c define the
// numbers. kernel/cuda also reads them.
type Formula struct {
	Width, Height int // size of the result
	Scaled        bool
	Numbers       [10]int32
	// Taps, Position and Weight describe four filters if Scaled is true: across luma, across
	// chroma, down luma and down chroma. Taps is the number of taps per result, and Position the
	// first source sample of each result.
	Taps     [4]int
	Position [4][]int32
	Weight   [4][]int16
}

// Formulas is implemented by a Backend that can describe its conversions.
type Formulas interface {
	Formula(info *PlaneInfo, width, height int) (Formula, bool)
}

// FormulaOf returns the formula that converts planes to spec. ok is false if the host does not use
// a formula for this conversion.
func FormulaOf(info PlaneInfo, spec *Spec) (formula Formula, ok bool) {
	b, err := ActiveBackend()
	owner, ok := b.(Formulas) // false also if b is nil
	if err != nil || !ok || spec.Pixel != RGB8 || info.Rotation != 0 {
		return Formula{}, false
	}
	width, height := spec.Width, spec.Height
	if width == 0 {
		width, height = int(info.Width), int(info.Height)
	}
	return owner.Formula(&info, width, height)
}

var (
	deviceMu   sync.Mutex
	openDevice func(device int) (DeviceBackend, error)
)

// RegisterDevice sets the function that OpenDevice calls. It is called from init.
func RegisterDevice(open func(device int) (DeviceBackend, error)) {
	deviceMu.Lock()
	defer deviceMu.Unlock()
	openDevice = open
}

// OpenDevice returns the video engines of a GPU, identified by the driver's number, or an error
// with the reason why there are none.
func OpenDevice(device int) (DeviceBackend, error) {
	deviceMu.Lock()
	open := openDevice
	deviceMu.Unlock()
	if open == nil {
		return nil, robocache.Unsupported(opDecode, nil,
			"this build has no decoder for the engines of a GPU").
			WithHint("import robocache/video/nvdec")
	}
	return open(device)
}
