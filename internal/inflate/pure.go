package inflate

import (
	"bufio"
	"bytes"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
)

// truncatedReader returns io.ErrUnexpectedEOF at the end of the input, because the decompressor
// reads beyond the end only if the stream is truncated. Without it, klauspost/compress returns
// io.EOF for a plain deflate stream that ends within a code. The other kinds detect this by their
// missing checksum.
type truncatedReader struct{ *bytes.Reader }

func (c truncatedReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// inflatePure implements Some with klauspost/compress.
func inflatePure(kind Kind, dst, src []byte) (written, read int, err error) {
	in := bytes.NewReader(src)
	var buf *bufio.Reader // between in and r, or nil
	var r io.Reader
	switch kind {
	case RawDeflate:
		buf = bufio.NewReader(truncatedReader{in})
		r = flate.NewReader(buf)
	case ZlibStream:
		if len(src) > 1 && src[1]&0x20 != 0 { // a preset dictionary, which is not available
			return 0, 0, errDamaged
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
		return 0, 0, errDamaged
	}
	// io.ReadFull would return the same error for the end of the stream and for truncated data.
	for err == nil && written < len(dst) {
		var n int
		n, err = r.Read(dst[written:])
		written += n
	}
	for err == nil { // reads the end of the stream and verifies the checksum
		var more [1]byte
		var n int
		if n, err = r.Read(more[:]); n > 0 {
			return 0, 0, ErrRoom
		}
	}
	if err != io.EOF {
		return 0, 0, errDamaged
	}
	read = len(src) - in.Len()
	if buf != nil {
		read -= buf.Buffered()
	}
	return written, read, nil
}
