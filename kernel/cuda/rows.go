package cuda

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// copiesOfLaunch is kCopies of src/frames.cu.
const copiesOfLaunch = 128

// rowsParams is Copies there.
type rowsParams struct {
	from, to  [copiesOfLaunch]uintptr
	areas     [2]rowsArea
	blocks, _ int32
}

type rowsArea struct {
	bytes, from, to, fromAt, toAt int64
	rows, row                     int32 // row: threads of one
}

// Rows is a form of copies: rows of up to two areas. A copy of n bytes is one row of n.
type Rows [2]Area

// Area is rows of so many bytes. Behind where a copy begins they begin FromAt and ToAt bytes; they
// follow each other at From and To bytes.
type Area struct{ Bytes, Rows, From, To, FromAt, ToAt int }

// RowCopies copies rows within a device's memory, many copies at once: each alone is a call of the
// driver, and calls wait for one another.
type RowCopies struct {
	on   launcher
	call call
}

// PrepareRows makes the kernel ready.
func (d *Device) PrepareRows() (_ *RowCopies, err error) {
	x := &RowCopies{on: d.on, call: call{kernel: "copy_rows", block: 256}}
	if err := d.on.prepare(&x.call); err != nil {
		return nil, err
	}
	return x, nil
}

// Run copies on a stream. What is written must not overlap.
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
		k.grid, k.params = uint32(n)*uint32(blocks), paramsOf(&p)
		if err := x.on.launch(&k, stream); err != nil {
			return err
		}
		to, from = to[n:], from[n:]
	}
	return nil
}
