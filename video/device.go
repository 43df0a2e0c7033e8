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

// DeviceMemory is a DeviceBackend's memory, as slices over addresses of the device: the host reads
// and writes none of their bytes. What is done with it is done in the order of the calls, frames'
// conversions among them, and is over after Wait.
type DeviceMemory interface {
	Number() int // the driver's, of the device
	Alloc(n int) ([]byte, error)
	Free(m []byte)
	Upload(dst, src []byte) error // src, of the host, is the caller's again when it returns
	// UploadPlanes copies kept planes of the host, 4:2:0 of 8 bits, into info's Bytes there, as
	// DeviceFrame.KeepPlanes leaves them.
	UploadPlanes(info PlaneInfo, dst, planes []byte) error
	Copy(dst, src [][]byte) error // pieces of one size
	Clear(dst []byte) error
	// Converts says whether frames of that form become what spec says there, to the bit as on the
	// host.
	Converts(info PlaneInfo, spec *Spec) bool
	// ConvertKept is Convert of planes that DeviceFrames kept, all of one form.
	ConvertKept(info PlaneInfo, planes [][]byte, spec *Spec, dst [][]byte) error
	Wait() error
}

// DeviceFrame is a Frame on a device.
type DeviceFrame interface {
	PlanarFrame
	// ConvertThere writes the frame into memory of the device, where DeviceMemory.Converts.
	ConvertThere(spec *Spec, dst []byte) error
	// KeepPlanes writes its planes into memory of the device, of PlaneInfo's Bytes; luma, then
	// pairs of chroma.
	KeepPlanes(dst []byte) error
}

// Formula is how the host's own code makes 8-bit RGB of 4:2:0 planes, in integers: what a device
// has to do to give the same. video/ffmpeg's planar.c and scale.c say what the numbers are;
// kernel/cuda has the other reader of them.
type Formula struct {
	Width, Height int // of the result
	Scaled        bool
	Numbers       [10]int32
	// Where it scales: filters across luma and chroma, down luma and chroma. Taps a result;
	// Position of the first.
	Taps     [4]int
	Position [4][]int32
	Weight   [4][]int16
}

// Formulas is a Backend that knows its own.
type Formulas interface {
	Formula(info *PlaneInfo, width, height int) (Formula, bool)
}

// FormulaOf is the formula by which planes become what spec says; false where the host does it
// otherwise.
func FormulaOf(info PlaneInfo, spec *Spec) (Formula, bool) {
	b, err := ActiveBackend()
	own, ok := b.(Formulas)
	if err != nil || !ok || spec.Pixel != RGB8 || info.Rotation != 0 {
		return Formula{}, false
	}
	width, height := spec.Width, spec.Height
	if width == 0 {
		width, height = int(info.Width), int(info.Height)
	}
	return own.Formula(&info, width, height)
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

// OpenDevice gives the video engines of a GPU, by the driver's number of it, or says why there are
// none.
func OpenDevice(device int) (DeviceBackend, error) {
	deviceMu.Lock()
	open := openDevice
	deviceMu.Unlock()
	if open == nil {
		return nil, robocache.Unsupported(opDecode, nil, "no decoder for a GPU's engines is in this build").
			WithHint("import robocache/video/nvdec")
	}
	return open(device)
}
