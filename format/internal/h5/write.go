package h5

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/goatnote-inc/robocache"
)

// Writer writes one HDF5 file: groups, attributes, data sets of known shape. One goroutine at a time.
//
// # Contract
//
//	W1  Files are of superblock 2, headers 2, compact links, layouts 3 and 4: libhdf5 from 1.10 on reads them, and this package does.
//	W2  Nothing is kept of a data set but a chunk for each core; of a group its links and attributes, until it is closed. What was begun
//	    is closed in the reverse order; Close of the writer ends the file. A file that was not closed has no head.
//	W3  The same calls give the same bytes.
//	W4  Texts are UTF-8 of varying length, as h5py's str; Bool is h5py's bool. Names and texts may be of any length, other attributes
//	    of 64 KB at most.
type Writer struct {
	out  io.WriterAt
	pos  int64 // end of what was given away
	root *GroupWriter
	heap heapWriter
	err  error
}

const superblockSize = 48

// NewWriter begins a file. out is written in any order, each byte once at most; what is between is zero.
func NewWriter(out io.WriterAt) *Writer {
	w := &Writer{out: out, pos: superblockSize}
	w.root = &GroupWriter{w: w}
	return w
}

// Root is the group "/".
func (w *Writer) Root() *GroupWriter { return w.root }

// Size is the number of bytes so far.
func (w *Writer) Size() int64 { return w.pos }

// Close ends the file: the root group, the texts, the superblock.
func (w *Writer) Close() error {
	w.flushHeap()
	addr, err := w.root.end()
	if err != nil {
		return err
	}
	var b buffer
	b.text("\x89HDF\r\n\x1a\n")
	b.u8(2)
	b.u8(8) // bytes of an address
	b.u8(8) // bytes of a length
	b.u8(0)
	b.u64(0)
	b.u64(undefined)
	b.u64(uint64(w.pos))
	b.u64(addr)
	b.u32(lookup3(b))
	w.writeAt(b, 0)
	if w.err == nil {
		w.err = writeMisuse("the file is closed")
		return nil
	}
	return w.err
}

func writeMisuse(format string, args ...any) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "write hdf5", Msg: fmt.Sprintf(format, args...)}
}

// take gives away n bytes of the file, on a boundary of eight.
func (w *Writer) take(n int64) int64 {
	at := (w.pos + 7) &^ 7
	if n < 0 || n > math.MaxInt64/2-at {
		w.fail(&robocache.Error{Class: robocache.ErrResourceLimit, Op: "write hdf5", Msg: "the file is too large"})
		return at
	}
	w.pos = at + n
	return at
}

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *Writer) writeAt(b []byte, off int64) {
	if w.err != nil || len(b) == 0 {
		return
	}
	_, err := w.out.WriteAt(b, off)
	w.fail(err)
}

// add writes a block behind all others.
func (w *Writer) add(b []byte) uint64 {
	at := w.take(int64(len(b)))
	w.writeAt(b, at)
	return uint64(at)
}

// buffer is a piece of metadata in the making.
type buffer []byte

func (b *buffer) u8(v uint8)    { *b = append(*b, v) }
func (b *buffer) u16(v uint16)  { *b = binary.LittleEndian.AppendUint16(*b, v) }
func (b *buffer) u32(v uint32)  { *b = binary.LittleEndian.AppendUint32(*b, v) }
func (b *buffer) u64(v uint64)  { *b = binary.LittleEndian.AppendUint64(*b, v) }
func (b *buffer) text(s string) { *b = append(*b, s...) }
func (b *buffer) bytes(p []byte) {
	*b = append(*b, p...)
}

const msgGroupInfo = 0x0a

// headerWriter collects the messages of an object header.
type headerWriter struct{ messages buffer }

func (h *headerWriter) message(kind uint8, body []byte) {
	h.messages.u8(kind)
	h.messages.u16(uint16(len(body)))
	h.messages.u8(0)
	h.messages.bytes(body)
}

// header writes an object header and gives its address.
func (w *Writer) header(h *headerWriter) uint64 {
	var b buffer
	b.text("OHDR")
	b.u8(2)
	b.u8(2) // no times, a size of four bytes
	if uint64(len(h.messages)) > math.MaxUint32 {
		w.fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "write hdf5", Msg: "a group of more than 4 GB of names and attributes"})
		return undefined
	}
	b.u32(uint32(len(h.messages)))
	b.bytes(h.messages)
	b.u32(lookup3(b))
	return w.add(b)
}
