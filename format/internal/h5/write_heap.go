package h5

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
)

// referenceSize is the bytes of an element of varying length: length, address of a collection, number in it.
const referenceSize = 16

// heapWriter collects texts in global heap collections.
type heapWriter struct {
	at    int64
	body  buffer // of the open collection, with its head
	count int
	size  int // of the collection
}

const heapHead, heapObject = 16, 16

// reference puts a text into the file and gives the element that refers to it.
func (w *Writer) reference(s string) buffer {
	var b buffer
	if s == "" {
		b.u32(0)
		b.u64(0)
		b.u32(0)
		return b
	}
	if uint64(len(s)) > math.MaxUint32 {
		w.fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "write hdf5", Msg: "a text of more than 4 GB"})
		return b
	}
	h := &w.heap
	need := heapObject + (len(s)+7)&^7
	if len(h.body) == 0 || len(h.body)+need > h.size || h.count == math.MaxUint16 {
		// Collections grow, so that small files stay small.
		next := min(max(2*h.size, 4096), 1<<16)
		w.flushHeap()
		h.size = max(next, (heapHead+need+7)&^7)
		h.at = w.take(int64(h.size))
		h.body, h.count = h.body[:0], 0
		h.body.text("GCOL")
		h.body.u32(1) // version and three zeros
		h.body.u64(uint64(h.size))
	}
	h.count++
	h.body.u16(uint16(h.count))
	h.body.u16(1) // referred to once
	h.body.u32(0)
	h.body.u64(uint64(len(s)))
	h.body.text(s)
	for len(h.body)%8 != 0 {
		h.body.u8(0)
	}
	b.u32(uint32(len(s)))
	b.u64(uint64(h.at))
	b.u32(uint32(h.count))
	return b
}

// flushHeap writes the open collection; what is free in it is object 0.
func (w *Writer) flushHeap() {
	h := &w.heap
	if len(h.body) == 0 {
		return
	}
	if free := h.size - len(h.body); free >= heapObject {
		h.body.u64(0)
		h.body = binary.LittleEndian.AppendUint64(h.body, uint64(free))
	}
	w.writeAt(append(h.body, make([]byte, h.size-len(h.body))...), h.at)
	h.body = h.body[:0]
}
