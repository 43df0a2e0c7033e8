package h5

import (
	"encoding/binary"
	"io"
	"math"

	"github.com/goatnote-inc/robocache"
)

// Writer writes one HDF5 file with groups, attributes and data sets of known shape. A Writer is not
// safe for concurrent use.
//
// # Contract
//
//	h5.W1  Files have superblock 2, headers of version 2, compact links, and layouts 3 and 4.
//	       libhdf5 1.10 and later and this package can read them.
//	h5.W2  Of a data set, the writer keeps one chunk per core in memory. Of a group, it keeps the
//	       links and attributes until the group is closed. Children are closed before their
//	       parent, and Close of the writer completes the file. A file that was not closed has no
//	       superblock.
//	h5.W3  The same calls produce the same bytes.
//	h5.W4  Texts are UTF-8 of variable length, like str in h5py. Bool is the bool of h5py. Names
//	       and texts may have any length. Other attributes have at most 64 KB.
type Writer struct {
	out  io.WriterAt
	pos  int64 // end of the allocated part
	root *GroupWriter
	heap heapWriter
	err  error
}

const superblockSize = 48

// NewWriter returns a writer of a new file. It writes to out in any order, and each byte at most
// once. Gaps must read as zero.
func NewWriter(out io.WriterAt) *Writer {
	w := &Writer{out: out, pos: superblockSize}
	w.root = &GroupWriter{w: w}
	return w
}

// Root returns the group "/".
func (w *Writer) Root() *GroupWriter { return w.root }

// Size returns the number of bytes so far.
func (w *Writer) Size() int64 { return w.pos }

// Close completes the file: it writes the root group, the texts and the superblock.
func (w *Writer) Close() error {
	w.flushHeap()
	addr, err := w.root.writeGroup()
	if err != nil {
		return err
	}
	// addresses and lengths have 8 bytes
	b := packMetadata(
		"\x89HDF\r\n\x1a\n",
		u8(2),
		u8(8),
		u8(8),
		u8(0),
		uint64(0),
		undefined,
		w.pos,
		addr,
	)
	w.writeAt(append(b, packMetadata(lookup3Hash(b))...), 0)
	if w.err == nil {
		w.err = writeMisuse("the file is closed")
		return nil
	}
	return w.err
}

func writeMisuse(format string, args ...any) error {
	return robocache.Misuse("write hdf5", nil, format, args...)
}

func (w *Writer) recordFailure(class error, msg string) {
	w.recordError(robocache.NewError(class, "write hdf5", nil, "%s", msg))
}

// recordError stores the first error. The writer writes nothing after an error.
func (w *Writer) recordError(err error) {
	if w.err == nil {
		w.err = err
	}
}

// reserveBytes allocates n bytes of the file at an 8-byte boundary and returns their offset.
func (w *Writer) reserveBytes(n int64) int64 {
	at := (w.pos + 7) &^ 7
	if n < 0 || n > math.MaxInt64/2-at {
		w.recordFailure(robocache.ErrResourceLimit, "the file is too large")
		return at
	}
	w.pos = at + n
	return at
}

func (w *Writer) writeAt(b []byte, off int64) {
	if w.err == nil && len(b) > 0 {
		_, err := w.out.WriteAt(b, off)
		w.recordError(err)
	}
}

// appendBlock writes a block at the end of the file and returns its address.
func (w *Writer) appendBlock(b []byte) uint64 {
	at := w.reserveBytes(int64(len(b)))
	w.writeAt(b, at)
	return uint64(at)
}

type (
	u8  = uint8
	u16 = uint16
	u32 = uint32
)

// packMetadata encodes a piece of metadata. Numbers are little-endian in their own width. Strings
// and bytes are copied.
func packMetadata(parts ...any) []byte {
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

// messages is the encoded list of messages of an object header.
type messages []byte

func (m *messages) addMessage(kind uint8, parts ...any) {
	body := packMetadata(parts...)
	*m = append(append(*m, packMetadata(kind, u16(len(body)), u8(0))...), body...)
}

// writeHeader writes an object header and returns its address.
func (w *Writer) writeHeader(m messages) uint64 {
	if uint64(len(m)) > math.MaxUint32 {
		w.recordFailure(
			robocache.ErrUnsupported,
			"a group of more than 4 GB of names and attributes",
		)
		return undefined
	}
	b := packMetadata(
		"OHDR",
		u8(2),
		u8(2),
		u32(len(m)),
		[]byte(m),
	) // no times, a size field of four bytes
	return w.appendBlock(append(b, packMetadata(lookup3Hash(b))...))
}
