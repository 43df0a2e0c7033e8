package pq

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/compress/lz4"
)

var zstdDecoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return err
	}
	return d
}}

// decompress fills dst, which has the size that the page's header declares; anything shorter or longer is a fault.
// The declared size was checked against the limit before dst was made, so a bomb ends here.
func decompress(codec int32, dst, src []byte) error {
	bad := func(msg string) error { return malformed(nil, msg) }
	var out []byte
	var err error
	switch codec {
	case 0:
		if len(src) != len(dst) {
			return bad("an uncompressed page of another size than declared")
		}
		copy(dst, src)
		return nil
	case 1:
		n, e := snappy.DecodedLen(src)
		if e != nil || n != len(dst) {
			return bad("snappy: the page holds another number of bytes than declared")
		}
		out, err = snappy.Decode(dst, src)
	case 2:
		z, e := gzip.NewReader(bytes.NewReader(src))
		if e != nil {
			return bad("gzip: " + e.Error())
		}
		if _, e = io.ReadFull(z, dst); e != nil {
			return bad("gzip: " + e.Error())
		}
		var one [1]byte
		if n, _ := z.Read(one[:]); n != 0 {
			return bad("gzip: more bytes than declared")
		}
		return nil
	case 6:
		z := zstdDecoders.Get()
		d, ok := z.(*zstd.Decoder)
		if !ok {
			return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "zstd", Msg: fmt.Sprint(z)}
		}
		defer zstdDecoders.Put(d)
		if e := d.Reset(bytes.NewReader(src)); e != nil {
			return bad("zstd: " + e.Error())
		}
		if _, e := io.ReadFull(d, dst); e != nil {
			return bad("zstd: " + e.Error())
		}
		var one [1]byte
		if n, _ := io.ReadFull(d, one[:]); n != 0 {
			return bad("zstd: more bytes than declared")
		}
		return nil
	case 7:
		out, err = (&lz4.Codec{}).Decode(dst, src)
	default:
		names := map[int32]string{3: "LZO", 4: "BROTLI", 5: "LZ4 (the deprecated framing)"}
		name := names[codec]
		if name == "" {
			name = fmt.Sprintf("number %d", codec)
		}
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "parquet", Msg: "compression " + name, Hint: "write the file with snappy or zstd"}
	}
	if err != nil {
		return bad("decompression: " + err.Error())
	}
	if len(out) != len(dst) {
		return bad("a page of another size than declared")
	}
	if len(out) > 0 && &out[0] != &dst[0] {
		copy(dst, out)
	}
	return nil
}
