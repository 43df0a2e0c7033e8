package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// framesOfLaunch is kFrames of src/frames.cu.
const framesOfLaunch = 32

// frameParams mirrors Frames of src/frames.cu, which documents the fields.
type frameParams struct {
	planes, outs                          [framesOfLaunch]uintptr
	chroma                                int64
	position, weight                      [4]uintptr
	outRow, outChannel                    int64
	outColumn, lumaRow, chromaRow, blocks int32
	width, height                         int32
	taps, limit                           [4]int32
	numbers                               [10]int32
	tile, lumaRows, chromaRows, _         int32
}

// FrameForm describes the conversion of frames to RGB. Its fields are those of video.Formula.
type FrameForm struct {
	Width, Height int
	Scaled        bool
	Numbers       [10]int32
	Taps          [4]int
	Position      [4][]int32
	Weight        [4][]int16
}

// FramePlanes locates the planes of a frame on the device. The format is 4:2:0 with 8 bits and
// interleaved chroma. The planes are read in words of four bytes, each of which contains at least
// one byte of the plane. If frames are scaled, the distance between rows must be a multiple of four
// bytes.
type FramePlanes struct {
	Luma, Chroma       uintptr
	LumaRow, ChromaRow int // bytes between rows
}

// Frames converts frames of one form to RGB. It keeps the tables of the form while it lives. Safe
// for concurrent use.
type Frames struct {
	on     launcher
	call   call
	params frameParams
}

// PrepareFrames loads the kernel for a form.
func (d *Device) PrepareFrames(f *FrameForm) (_ *Frames, err error) {
	x := &Frames{
		on:     d.launcher,
		params: frameParams{width: int32(f.Width), height: int32(f.Height), numbers: f.Numbers},
	}
	pairs := int64(f.Width+1) / 2 * int64(f.Height)
	if f.Width < 1 || f.Height < 1 || pairs > math.MaxInt32-256 || f.Scaled && f.Width%2 != 0 {
		return nil, unsuitableError(f)
	}
	x.call = call{kernel: "frame_rgb", block: 256, grid: uint32(ceilDiv(pairs, 256))}
	if f.Scaled {
		if err := x.prepareScaling(d, f); err != nil {
			return nil, err
		}
	}
	if err := d.launcher.prepareKernel(&x.call); err != nil {
		return nil, err
	}
	return x, nil
}

// For frame_scaled: columns and maximal rows of a tile of the result, and its shared memory.
const (
	frameTile    = 32
	frameRows    = 16
	frameScratch = 40 << 10
)

// prepareScaling copies the filters to the device and divides the result into tiles.
func (x *Frames) prepareScaling(d *Device, f *FrameForm) error {
	var tables []byte
	var positionAt, weightAt [4]int // offsets in tables
	var first [4][]int32            // first sample of each row or column
	p := &x.params
	for k := range f.Taps { // columns of luma and chroma, then rows of both
		filter, err := x.padFilter(f, k)
		if err != nil {
			return err
		}
		first[k] = filter.position
		p.taps[k] = int32(filter.taps)
		positionAt[k] = len(tables)
		for _, v := range filter.position {
			tables = binary.LittleEndian.AppendUint32(tables, uint32(v))
		}
		weightAt[k] = len(tables)
		if k < 2 {
			for _, v := range filter.weight {
				tables = binary.LittleEndian.AppendUint16(tables, uint16(v))
			}
		} else {
			tables = appendPairs(tables, filter.weight)
		}
		tables = append(tables, make([]byte, -len(tables)&3)...)
	}
	if !x.chooseTile(f, &first) {
		return unsuitableError(f)
	}
	x.call.kernel = "frame_scaled"
	x.call.grid = uint32(
		ceilDiv(int64(f.Width), frameTile) * ceilDiv(int64(f.Height), int64(p.tile)),
	)
	base, err := d.launcher.uploadBytes(tables)
	if err != nil {
		return err
	}
	for k := range f.Taps {
		p.position[k] = base + uintptr(positionAt[k])
		p.weight[k] = base + uintptr(weightAt[k])
	}
	return nil
}

// frameFilter is a filter of one axis of a plane.
type frameFilter struct {
	position []int32 // first sample of each row or column
	weight   []int16 // taps weights of each row or column
	taps     int
}

// padFilter returns filter k of a form with taps that the kernel can read. Filters 0 and 1 are
// those of columns, 2 and 3 those of rows. It sets the limit of the filter: the end of the samples
// that are read.
func (x *Frames) padFilter(f *FrameForm, k int) (out frameFilter, err error) {
	position, weight, taps := f.Position[k], f.Weight[k], f.Taps[k]
	limit := &x.params.limit[k]
	for i, from := range position {
		for j, w := range weight[i*taps : (i+1)*taps] {
			if w != 0 {
				*limit = max(*limit, from+int32(j)+1)
			}
		}
		isAscending := i == 0 || from >= position[i-1]
		if from < 0 || !isAscending {
			return out, unsuitableError(f)
		}
	}
	if k >= 2 {
		out.position, out.weight, out.taps = padToPairs(position, weight, taps)
		return out, nil
	}
	out.position, out.weight, out.taps = padToFours(position, weight, taps, *limit)
	if out.position == nil {
		return out, unsuitableError(f)
	}
	return out, nil
}

// appendPairs appends the weights of two rows at a time, as four bytes: the low bytes of both, then
// the high bytes. The kernel multiplies bytes (dp2a), and combines the sums of low and high bytes.
func appendPairs(tables []byte, weight []int16) []byte {
	for i := 1; i < len(weight); i += 2 {
		u, v := weight[i-1], weight[i]
		tables = append(tables, byte(u), byte(v), byte(u>>8), byte(v>>8))
	}
	return tables
}

// chooseTile chooses the largest tile whose source rows fit into shared memory. It returns false if
// none does, because the scale factor is too small.
func (x *Frames) chooseTile(f *FrameForm, first *[4][]int32) bool {
	p := &x.params
	for p.tile = frameRows; p.tile > 0; p.tile /= 2 {
		rows := func(k int) (most int32) { // maximal number of source rows of plane k for a tile
			for y := 0; y < f.Height; y += int(p.tile) {
				end := min(y+int(p.tile), f.Height)
				most = max(most, first[k][end-1]+p.taps[k]-first[k][y])
			}
			return most
		}
		p.lumaRows = rows(2)
		p.chromaRows = rows(3)
		x.call.shared = uint32(2 * frameTile * (p.lumaRows + p.chromaRows))
		if x.call.shared <= frameScratch {
			return true
		}
	}
	return false
}

// padToFours changes filters to a multiple of four taps, by zeros at the end. Filters that would
// then read beyond limit start earlier. It returns nil if there are fewer samples than taps.
func padToFours(position []int32, weight []int16, taps int, limit int32) ([]int32, []int16, int) {
	n := (taps + 3) &^ 3
	if int(limit) < n {
		return nil, nil, 0
	}
	to := make([]int32, len(position))
	out := make([]int16, len(position)*n)
	for i, first := range position {
		to[i] = min(first, limit-int32(n))
		for j, w := range weight[i*taps : (i+1)*taps] {
			if w != 0 {
				out[i*n+int(first-to[i])+j] = w
			}
		}
	}
	return to, out, n
}

// padToPairs changes filters to an even number of taps that start at even samples, by zeros at both
// ends.
func padToPairs(position []int32, weight []int16, taps int) ([]int32, []int16, int) {
	n := (taps + 2) &^ 1
	to := make([]int32, len(position))
	out := make([]int16, len(position)*n)
	for i, first := range position {
		to[i] = first &^ 1
		copy(out[i*n+int(first&1):], weight[i*taps:(i+1)*taps])
	}
	return to, out, n
}

// unsuitableError returns the error for a form that the kernels do not support.
func unsuitableError(f *FrameForm) error {
	return robocache.Unsupported("CUDA", nil, "frames of this size").
		Expected("", fmt.Sprintf("%d×%d", f.Width, f.Height))
}

// Run converts frames on a stream. All frames must have the same plane layout. planes selects a
// planar result; otherwise the result is packed.
func (x *Frames) Run(from []FramePlanes, out []uintptr, planes bool, stream uintptr) error {
	if len(from) == 0 {
		return nil
	}
	p := x.params
	if x.call.kernel == "frame_scaled" && (from[0].LumaRow|from[0].ChromaRow)%4 != 0 {
		return robocache.Unsupported("CUDA", nil,
			"rows of frames that are to be scaled are not a multiple of 4 bytes apart").
			Expected("", fmt.Sprint(from[0].LumaRow, " and ", from[0].ChromaRow))
	}
	p.outRow = 3 * int64(p.width)
	p.outColumn = 3
	p.outChannel = 1
	if planes {
		p.outRow, p.outColumn, p.outChannel = int64(p.width), 1, int64(p.width)*int64(p.height)
	}
	p.lumaRow = int32(from[0].LumaRow)
	p.chromaRow = int32(from[0].ChromaRow)
	p.chroma = int64(from[0].Chroma - from[0].Luma)
	p.blocks = int32(x.call.grid)
	for len(from) > 0 {
		n := min(len(from), framesOfLaunch)
		for i := range n {
			p.planes[i] = from[i].Luma
			p.outs[i] = out[i]
		}
		k := x.call
		k.grid *= uint32(n)
		k.params = paramsOf(&p)
		if err := x.on.launchCall(&k, stream); err != nil {
			return err
		}
		from, out = from[n:], out[n:]
	}
	return nil
}
