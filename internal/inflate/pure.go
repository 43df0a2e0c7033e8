package inflate

import (
	"bufio"
	"bytes"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
)

// engine is a decompressor of one kind with its input.
type engine struct {
	in  *bytes.Reader
	buf *bufio.Reader // between in and r, or nil
	r   io.Reader
	// reset begins another stream from in.
	reset func() error
}

// cut has no end: where the decompressor wants more, the stream is cut. Of a plain deflate stream that ends within a code
// klauspost/compress says io.EOF, as of a whole one; in the other kinds the checksum is missing then.
type cut struct{ *bytes.Reader }

func (c cut) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

var engines = [3]sync.Pool{
	RawDeflate: {New: func() any {
		e := &engine{in: bytes.NewReader(nil)}
		e.buf = bufio.NewReader(nil)
		r := flate.NewReader(e.buf)
		e.r, e.reset = r, func() error {
			e.buf.Reset(cut{e.in})
			return r.(flate.Resetter).Reset(e.buf, nil)
		}
		return e
	}},
	ZlibStream: {New: func() any {
		e := &engine{in: bytes.NewReader(nil)}
		e.reset = func() error {
			if e.r != nil {
				return e.r.(zlib.Resetter).Reset(e.in, nil)
			}
			r, err := zlib.NewReader(e.in)
			if err == nil {
				e.r = r
			}
			return err
		}
		return e
	}},
	GzipMember: {New: func() any {
		e, r := &engine{in: bytes.NewReader(nil)}, new(gzip.Reader)
		e.r, e.reset = r, func() error {
			err := r.Reset(e.in)
			r.Multistream(false)
			return err
		}
		return e
	}},
}

// pure is Some by klauspost/compress.
func pure(kind Kind, dst, src []byte) (written, read int, err error) {
	e := engines[kind].Get().(*engine)
	defer engines[kind].Put(e)
	defer e.in.Reset(nil)
	e.in.Reset(src)
	if kind == ZlibStream && len(src) > 1 && src[1]&0x20 != 0 { // a dictionary that nobody has
		return 0, 0, errData
	}
	if err := e.reset(); err != nil {
		return 0, 0, errData
	}
	// io.ReadFull would give one error for the end of the stream and for data that is cut.
	for err == nil && written < len(dst) {
		var n int
		n, err = e.r.Read(dst[written:])
		written += n
	}
	for err == nil { // the end, and the checksum behind it
		var more [1]byte
		var n int
		if n, err = e.r.Read(more[:]); n > 0 {
			return 0, 0, ErrRoom
		}
	}
	if err != io.EOF {
		return 0, 0, errData
	}
	read = len(src) - e.in.Len()
	if e.buf != nil {
		read -= e.buf.Buffered()
	}
	return written, read, nil
}
