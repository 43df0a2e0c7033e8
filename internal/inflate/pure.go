package inflate

import (
	"bufio"
	"bytes"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
)

// cut has no end: where the decompressor wants more, the stream is cut. Of a plain deflate stream
// that ends within a code klauspost/compress says io.EOF, as of a whole one; in the other kinds the
// checksum is missing then.
type cut struct{ *bytes.Reader }

func (c cut) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// pure is Some by klauspost/compress.
func pure(kind Kind, dst, src []byte) (written, read int, err error) {
	in := bytes.NewReader(src)
	var buf *bufio.Reader // between in and r, or nil
	var r io.Reader
	switch kind {
	case RawDeflate:
		buf = bufio.NewReader(cut{in})
		r = flate.NewReader(buf)
	case ZlibStream:
		if len(src) > 1 && src[1]&0x20 != 0 { // a dictionary that nobody has
			return 0, 0, errData
		}
		r, err = zlib.NewReader(in)
	case GzipMember:
		var z *gzip.Reader
		if z, err = gzip.NewReader(in); err == nil {
			z.Multistream(false)
		}
		r = z
	}
	if err != nil {
		return 0, 0, errData
	}
	// io.ReadFull would give one error for the end of the stream and for data that is cut.
	for err == nil && written < len(dst) {
		var n int
		n, err = r.Read(dst[written:])
		written += n
	}
	for err == nil { // the end, and the checksum behind it
		var more [1]byte
		var n int
		if n, err = r.Read(more[:]); n > 0 {
			return 0, 0, ErrRoom
		}
	}
	if err != io.EOF {
		return 0, 0, errData
	}
	read = len(src) - in.Len()
	if buf != nil {
		read -= buf.Buffered()
	}
	return written, read, nil
}
