package pq

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// data decodes levels and values of a data page.
func (d *decoder) data(h pageHeader, rep, def, b []byte) error {
	n := int(h.values)
	if int64(d.col.Entries)+int64(n) > d.want {
		return malformed(d.where, fmt.Sprintf("the footer claims %d values, the pages hold at least %d", d.want, d.col.Entries+n))
	}
	present := n
	if d.leaf.MaxRep > 0 {
		if err := d.repetition(rep, n); err != nil {
			return err
		}
	}
	if d.leaf.MaxDef > 0 {
		lv, all, ok := levels(d.lv[:0], def, n, d.leaf.MaxDef)
		if !ok {
			return malformed(d.where, "definition levels end early or are out of range")
		}
		if cap(lv) > cap(d.lv) {
			d.lv = lv
		}
		switch {
		case !all:
			if d.shape != nil {
				return d.null(lv)
			}
			present = d.keepDef(lv, n)
		case d.col.Def != nil:
			for range n {
				d.col.Def = append(d.col.Def, uint8(d.leaf.MaxDef))
			}
		}
	}
	if int64(d.col.Len()+present)*int64(max(1, d.col.width)) > d.limit {
		return d.tooLarge(int64(d.col.Len()+present) * int64(max(1, d.col.width)))
	}
	d.col.Entries += n
	return d.decode(h.encoding, b, present)
}

func (d *decoder) keepDef(lv []uint8, n int) int {
	if d.col.Def == nil {
		d.col.Def = make([]uint8, d.col.Entries, d.col.Entries+n)
		for i := range d.col.Def {
			d.col.Def[i] = uint8(d.leaf.MaxDef)
		}
	}
	present := 0
	for _, v := range lv {
		if int(v) == d.leaf.MaxDef {
			present++
		}
	}
	d.col.Def = append(d.col.Def, lv...)
	return present
}

// rowSize is the number of elements of a row of the shape.
func (d *decoder) rowSize() int {
	n := 1
	for _, s := range d.shape {
		n *= s
	}
	return max(1, n)
}

func (d *decoder) null(lv []uint8) error {
	for i, v := range lv {
		if int(v) != d.leaf.MaxDef {
			row := (d.col.Entries + i) / d.rowSize()
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "parquet", Where: with(d.where, "row", row), Want: "a value", Got: "null"}
		}
	}
	return malformed(d.where, "null")
}

// repetition checks the levels against the shape, or keeps them.
func (d *decoder) repetition(b []byte, n int) error {
	dims := d.shape
	lv, _, ok := levels(d.lv[:0], b, n, d.leaf.MaxRep)
	if !ok {
		return malformed(d.where, "repetition levels end early or are out of range")
	}
	if lv == nil {
		if cap(d.lv) < n {
			d.lv = make([]uint8, n)
		}
		lv = d.lv[:n]
		for i := range lv {
			lv[i] = uint8(d.leaf.MaxRep)
		}
	}
	d.lv = lv[:0]
	if dims == nil {
		d.col.Rep = append(d.col.Rep, lv...)
		return nil
	}
	if len(dims) != d.leaf.MaxRep {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "parquet", Where: d.where, Want: fmt.Sprintf("rows of shape %v", dims), Got: fmt.Sprintf("lists %d deep", d.leaf.MaxRep)}
	}
	size := d.rowSize()
	inner := dims[len(dims)-1]
	top := uint8(d.leaf.MaxRep)
	at := d.col.Entries % size
	for i, v := range lv {
		want := top
		if at%inner == 0 {
			want = restart(at, dims)
		}
		if v != want {
			row := (d.col.Entries + i) / size
			if v != 0 && want == 0 {
				row-- // the row before goes on where it should have ended
			}
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "parquet", Where: with(d.where, "row", max(0, row)), Want: fmt.Sprintf("an array of shape %v", dims), Got: "another length"}
		}
		if at++; at == size {
			at = 0
		}
	}
	return nil
}

// restart is the repetition level of element at of a row.
func restart(at int, dims []int) uint8 {
	if at == 0 {
		return 0
	}
	level := len(dims)
	for k := len(dims) - 1; k > 0 && at%dims[k] == 0; k-- {
		at /= dims[k]
		level--
	}
	return uint8(level)
}
