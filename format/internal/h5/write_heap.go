package h5

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// referenceSize is the size of an element of variable length: length, address of a collection,
// number in the collection.
const referenceSize = 16

// heapWriter collects texts in global heap collections.
type heapWriter struct {
	at    int64
	body  []byte // bytes of the current collection, with its header
	count int
	size  int // bytes of the collection
}

const heapHead, heapObject = 16, 16

// textReference writes a text to the heap and returns the element that refers to it.
func (w *Writer) textReference(s string) []byte {
	if s == "" {
		return make([]byte, referenceSize)
	}
	if uint64(len(s)) > math.MaxUint32 {
		w.recordFailure(robocache.ErrUnsupported, "a text of more than 4 GB")
		return nil
	}
	h := &w.heap
	pad := -len(s) & 7
	need := heapObject + len(s) + pad
	if len(h.body) == 0 || len(h.body)+need > h.size || h.count == math.MaxUint16 {
		// Collections grow, so that small files stay small.
		next := min(max(2*h.size, 4096), 1<<16)
		w.flushHeap()
		h.size = max(next, (heapHead+need+7)&^7)
		h.at = w.reserveBytes(int64(h.size))
		h.body, h.count = append(h.body[:0], packMetadata("GCOL", u32(1), uint64(h.size))...), 0
	}
	h.count++
	// reference count 1
	h.body = append(
		h.body,
		packMetadata(u16(h.count), u16(1), u32(0), uint64(len(s)), s, make([]byte, pad))...)
	return packMetadata(u32(len(s)), h.at, u32(h.count))
}

// flushHeap writes the current collection. Its free space is object 0.
func (w *Writer) flushHeap() {
	h := &w.heap
	if len(h.body) == 0 {
		return
	}
	if free := h.size - len(h.body); free >= heapObject {
		h.body = append(h.body, packMetadata(uint64(0), uint64(free))...)
	}
	w.writeAt(append(h.body, make([]byte, h.size-len(h.body))...), h.at)
	h.body = h.body[:0]
}
