package pq

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/pierrec/lz4/v4"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/inflate"
	"github.com/goatnote-inc/robocache/internal/unzstd"
)

// decompress fills dst, which has the size that the page's header declares; anything shorter or longer is a fault.
// The declared size was checked against the limit before dst was made, so a bomb ends here.
func decompress(codec int32, dst, src []byte) error {
	const wrong = ": the page holds another number of bytes than declared"
	var err error
	name := ""
	switch codec {
	case 1:
		name = "snappy"
		n, e := snappy.DecodedLen(src)
		if e != nil || n != len(dst) {
			return malformed(name + wrong)
		}
		_, err = snappy.Decode(dst, src) // into dst, which has the size
	case 2:
		name, err = "gzip", inflate.Gzip(dst, src)
	case 4:
		name, err = "brotli", unbrotli(dst, src)
	case 6:
		name, err = "zstd", unzstd.Fill(dst, src, unzstd.Verify)
	case 7:
		name = "lz4"
		if n, e := lz4.UncompressBlock(src, dst); e != nil || n != len(dst) {
			return malformed(name + wrong)
		}
	default:
		name := cmp.Or(map[int32]string{3: "LZO", 5: "LZ4 (the deprecated framing)"}[codec], fmt.Sprintf("number %d", codec))
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "parquet", Msg: "compression " + name, Hint: "write the file with snappy or zstd"}
	}
	if err != nil {
		return malformed(name + ": " + err.Error())
	}
	return nil
}

var brotlis = sync.Pool{New: func() any { return brotli.NewReader(nil) }}

// unbrotli fills dst. The decoder's window is 16 MiB at most, and smaller where the stream ends earlier: large windows are no part of the format.
func unbrotli(dst, src []byte) (err error) {
	defer func() {
		if recover() != nil { // a translation of C: what a hostile stream might make of its indices ends here, and its state is not used again
			err = errors.New("the stream is damaged")
		}
	}()
	z := brotlis.Get().(*brotli.Reader)
	_ = z.Reset(bytes.NewReader(src))
	if _, err := io.ReadFull(z, dst); err != nil {
		return err
	}
	var one [1]byte
	if n, e := z.Read(one[:]); n != 0 || e != io.EOF {
		return errors.New("the page holds another number of bytes than declared")
	}
	_ = z.Reset(nil)
	brotlis.Put(z)
	return nil
}
