package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// framesOfLaunch is kFrames of src/frames.cu.
const framesOfLaunch = 32

// frameParams is Frames there.
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

// FrameForm is how frames become RGB: video.Formula.
type FrameForm struct {
	Width, Height int
	Scaled        bool
	Numbers       [10]int32
	Taps          [4]int
	Position      [4][]int32
	Weight        [4][]int16
}

// FramePlanes is where the planes of a frame lie on the device: 4:2:0 of 8 bits, chroma as pairs.
// They are read by words of four bytes, each of which holds a byte of them. Where frames are
// scaled, rows lie a multiple of four bytes apart.
type FramePlanes struct {
	Luma, Chroma       uintptr
	LumaRow, ChromaRow int // bytes from row to row
}

// Frames makes RGB of frames of one form. It keeps the form's tables for as long as it lives; runs
// may come from many goroutines.
type Frames struct {
	on     launcher
	call   call
	params frameParams
}

// PrepareFrames makes the kernel of a form ready.
func (d *Device) PrepareFrames(f *FrameForm) (_ *Frames, err error) {
	x := &Frames{
		on:     d.on,
		params: frameParams{width: int32(f.Width), height: int32(f.Height), numbers: f.Numbers},
	}
	pairs := int64(f.Width+1) / 2 * int64(f.Height)
	if f.Width < 1 || f.Height < 1 || pairs > math.MaxInt32-256 || f.Scaled && f.Width%2 != 0 {
		return nil, unsuitable(f)
	}
	x.call = call{kernel: "frame_rgb", block: 256, grid: uint32(ceilDiv(pairs, 256))}
	if f.Scaled {
		if err := x.scale(d, f); err != nil {
			return nil, err
		}
	}
	if err := d.on.prepare(&x.call); err != nil {
		return nil, err
	}
	return x, nil
}

// Of frame_scaled: columns of a tile of the result, its rows at most, and the shared memory for it.
const (
	frameTile    = 32
	frameRows    = 16
	frameScratch = 40 << 10
)

// scale brings the filters to the device, and cuts the result into tiles.
func (x *Frames) scale(d *Device, f *FrameForm) error {
	var tables []byte
	var at [8]int
	var first [4][]int32
	p := &x.params
	for k := range f.Taps {
		position, weight, taps := f.Position[k], f.Weight[k], f.Taps[k]
		for i, from := range position {
			for j, w := range weight[i*taps : (i+1)*taps] {
				if w != 0 {
					p.limit[k] = max(p.limit[k], from+int32(j)+1)
				}
			}
			if from < 0 || i > 0 && from < position[i-1] {
				return unsuitable(f)
			}
		}
		if k < 2 {
			if position, weight, taps = fours(position, weight, taps, p.limit[k]); position == nil {
				return unsuitable(f)
			}
		} else {
			position, weight, taps = pairs(position, weight, taps)
		}
		first[k] = position
		p.taps[k], at[k] = int32(taps), len(tables)
		for _, v := range position {
			tables = binary.LittleEndian.AppendUint32(tables, uint32(v))
		}
		at[4+k] = len(tables)
		for i, v := range weight {
			if k < 2 {
				tables = binary.LittleEndian.AppendUint16(tables, uint16(v))
			} else if i%2 == 1 {
				u := weight[i-1]
				tables = append(tables, byte(u), byte(v), byte(u>>8), byte(v>>8))
			}
		}
		tables = append(tables, make([]byte, -len(tables)&3)...)
	}
	for p.tile = frameRows; ; p.tile /= 2 {
		if p.tile == 0 { // scaled down as nobody does
			return unsuitable(f)
		}
		rows := func(k int) (most int32) { // of a plane, for a tile
			for y := 0; y < f.Height; y += int(p.tile) {
				most = max(most, first[k][min(y+int(p.tile), f.Height)-1]+p.taps[k]-first[k][y])
			}
			return most
		}
		p.lumaRows, p.chromaRows = rows(2), rows(3)
		if x.call.shared = uint32(
			2 * frameTile * (p.lumaRows + p.chromaRows),
		); x.call.shared <= frameScratch {
			break
		}
	}
	x.call.kernel = "frame_scaled"
	x.call.grid = uint32(
		ceilDiv(int64(f.Width), frameTile) * ceilDiv(int64(f.Height), int64(p.tile)),
	)
	base, err := d.on.upload(tables)
	if err != nil {
		return err
	}
	for k := range f.Taps {
		p.position[k], p.weight[k] = base+uintptr(at[k]), base+uintptr(at[4+k])
	}
	return nil
}

// fours makes filters of a multiple of four taps, all before limit; nil where there are fewer
// samples than taps.
func fours(position []int32, weight []int16, taps int, limit int32) ([]int32, []int16, int) {
	n := (taps + 3) &^ 3
	if int(limit) < n {
		return nil, nil, 0
	}
	to, out := make([]int32, len(position)), make([]int16, len(position)*n)
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

// pairs makes filters of an even number of taps that begin at even samples.
func pairs(position []int32, weight []int16, taps int) ([]int32, []int16, int) {
	n := (taps + 2) &^ 1
	to, out := make([]int32, len(position)), make([]int16, len(position)*n)
	for i, first := range position {
		to[i] = first &^ 1
		copy(out[i*n+int(first&1):], weight[i*taps:(i+1)*taps])
	}
	return to, out, n
}

func unsuitable(f *FrameForm) error {
	return robocache.Unsupported("CUDA", nil, "frames of this size").
		Expected("", fmt.Sprintf("%d×%d", f.Width, f.Height))
}

// Run makes frames whose planes lie alike, packed or as planes, on a stream.
func (x *Frames) Run(from []FramePlanes, out []uintptr, planes bool, stream uintptr) error {
	if len(from) == 0 {
		return nil
	}
	p := x.params
	if x.call.kernel == "frame_scaled" && (from[0].LumaRow|from[0].ChromaRow)%4 != 0 {
		return robocache.Unsupported(
			"CUDA",
			nil,
			"rows of frames that are to be scaled are not a multiple of 4 bytes apart",
		).
			Expected("", fmt.Sprint(from[0].LumaRow, " and ", from[0].ChromaRow))
	}
	p.outRow, p.outColumn, p.outChannel = 3*int64(p.width), 3, 1
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
			p.planes[i], p.outs[i] = from[i].Luma, out[i]
		}
		k := x.call
		k.grid *= uint32(n)
		k.params = paramsOf(&p)
		if err := x.on.launch(&k, stream); err != nil {
			return err
		}
		from, out = from[n:], out[n:]
	}
	return nil
}
