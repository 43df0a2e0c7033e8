package h5

import (
	"encoding/binary"
	"io"
	"math"

	"github.com/goatnote-inc/robocache"
)

// Writer writes one HDF5 file: groups, attributes, data sets of known shape. One goroutine at a
// time.
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

// NewWriter begins a file. out is written in any order, each byte once at most; what is between is
// zero.
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
	// addresses and lengths of 8 bytes
	b := pack("\x89HDF\r\n\x1a\n", u8(2), u8(8), u8(8), u8(0), uint64(0), undefined, w.pos, addr)
	w.writeAt(append(b, pack(lookup3(b))...), 0)
	if w.err == nil {
		w.err = writeMisuse("the file is closed")
		return nil
	}
	return w.err
}

func writeMisuse(format string, args ...any) error {
	return robocache.Misuse("write hdf5", nil, format, args...)
}

func (w *Writer) fail(class error, msg string) {
	w.keep(robocache.NewError(class, "write hdf5", nil, "%s", msg))
}

// keep keeps the first error: nothing is written after it.
func (w *Writer) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

// take gives away n bytes of the file, on a boundary of eight.
func (w *Writer) take(n int64) int64 {
	at := (w.pos + 7) &^ 7
	if n < 0 || n > math.MaxInt64/2-at {
		w.fail(robocache.ErrResourceLimit, "the file is too large")
		return at
	}
	w.pos = at + n
	return at
}

func (w *Writer) writeAt(b []byte, off int64) {
	if w.err == nil && len(b) > 0 {
		_, err := w.out.WriteAt(b, off)
		w.keep(err)
	}
}

// add writes a block behind all others.
func (w *Writer) add(b []byte) uint64 {
	at := w.take(int64(len(b)))
	w.writeAt(b, at)
	return uint64(at)
}

type (
	u8  = uint8
	u16 = uint16
	u32 = uint32
)

// pack makes a piece of metadata: numbers in their own width, little-endian; texts and bytes as
// they are.
func pack(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		default:
			b, _ = binary.Append(b, binary.LittleEndian, p)
		}
	}
	return b
}

const (
	msgGroupInfo  = 0x0a
	msgReferences = 0x16
)

// messages are those of an object header.
type messages []byte

func (m *messages) add(kind uint8, parts ...any) {
	body := pack(parts...)
	*m = append(append(*m, pack(kind, u16(len(body)), u8(0))...), body...)
}

// header writes an object header and gives its address.
func (w *Writer) header(m messages) uint64 {
	if uint64(len(m)) > math.MaxUint32 {
		w.fail(robocache.ErrUnsupported, "a group of more than 4 GB of names and attributes")
		return undefined
	}
	b := pack("OHDR", u8(2), u8(2), u32(len(m)), []byte(m)) // no times, a size of four bytes
	return w.add(append(b, pack(lookup3(b))...))
}
