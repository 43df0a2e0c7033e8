package cuda

import "github.com/goatnote-inc/robocache/internal/guard"

// piecesOfLaunch is kPieces of src/frames.cu.
const piecesOfLaunch = 128

// piecesParams is Pieces there.
type piecesParams struct {
	from, to  [piecesOfLaunch]uintptr
	bytes     int64
	blocks, _ int32
}

// Pieces copies many pieces of a device's memory at once: a copy each is a call of the driver each, and calls wait for one another.
type Pieces struct {
	on   launcher
	call call
}

// PreparePieces makes the kernel ready.
func (d *Device) PreparePieces() (_ *Pieces, err error) {
	defer guard.Into(&err)
	x := &Pieces{on: d.on, call: call{kernel: "copy_pieces", block: 256}}
	guard.Check(d.on.prepare(&x.call))
	return x, nil
}

// Copy copies pieces of as many bytes, which do not overlap, on a stream.
func (x *Pieces) Copy(to, from []uintptr, bytes int, stream uintptr) error {
	p := piecesParams{bytes: int64(bytes), blocks: int32(ceilDiv(int64(bytes), 16*256))}
	for len(to) > 0 && bytes > 0 {
		n := min(len(to), piecesOfLaunch)
		copy(p.from[:n], from)
		copy(p.to[:n], to)
		k := x.call
		k.grid, k.params = uint32(n)*uint32(p.blocks), paramsOf(&p)
		if err := x.on.launch(&k, stream); err != nil {
			return err
		}
		to, from = to[n:], from[n:]
	}
	return nil
}
