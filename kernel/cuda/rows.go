package cuda

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// copiesOfLaunch is kCopies of src/frames.cu.
const copiesOfLaunch = 128

// rowsParams mirrors Copies of src/frames.cu.
type rowsParams struct {
	from, to  [copiesOfLaunch]uintptr
	areas     [2]rowsArea
	blocks, _ int32
}

// rowsArea mirrors Area of src/frames.cu.
type rowsArea struct {
	bytes        int64 // of a row
	from, to     int64 // distances between rows
	fromAt, toAt int64 // offsets of the first row
	rows         int32
	row          int32 // number of threads for one row
}

// Rows describes what one copy moves: the rows of up to two areas. A plain copy of n bytes has one
// area with one row of n bytes.
type Rows [2]Area

// Area is a block of rows with Bytes bytes each. Its first row starts FromAt and ToAt bytes after
// the start of the copy. From and To are the distances between rows, in bytes.
type Area struct{ Bytes, Rows, From, To, FromAt, ToAt int }

// RowCopies copies rows within the memory of a device, many copies at once. A separate driver call
// for each copy would be slower, because the calls are serialized.
type RowCopies struct {
	on   launcher
	call call
}

// PrepareRows loads the kernel.
func (d *Device) PrepareRows() (_ *RowCopies, err error) {
	x := &RowCopies{on: d.launcher, call: call{kernel: "copy_rows", block: 256}}
	if err := d.launcher.prepareKernel(&x.call); err != nil {
		return nil, err
	}
	return x, nil
}

// Run copies on a stream. Destinations must not overlap.
func (x *RowCopies) Run(to, from []uintptr, rows *Rows, stream uintptr) error {
	p := rowsParams{}
	items := int64(0)
	for i, a := range rows {
		row := ceilDiv(int64(a.Bytes), 16)
		items += row * int64(a.Rows)
		p.areas[i] = rowsArea{
			bytes:  int64(a.Bytes),
			from:   int64(a.From),
			to:     int64(a.To),
			fromAt: int64(a.FromAt),
			toAt:   int64(a.ToAt),
			rows:   int32(a.Rows),
			row:    int32(row),
		}
	}
	blocks := ceilDiv(items, 256)
	if blocks > math.MaxInt32/copiesOfLaunch {
		return robocache.Unsupported("CUDA", nil, "copies of this size").
			Expected("", fmt.Sprintf("%d pieces of 16 bytes", items))
	}
	p.blocks = int32(blocks)
	for len(to) > 0 && blocks > 0 {
		n := min(len(to), copiesOfLaunch)
		copy(p.from[:n], from)
		copy(p.to[:n], to)
		k := x.call
		k.grid = uint32(n) * uint32(blocks)
		k.params = paramsOf(&p)
		if err := x.on.launchCall(&k, stream); err != nil {
			return err
		}
		to, from = to[n:], from[n:]
	}
	return nil
}
