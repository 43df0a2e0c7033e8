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

// decompressInto fills dst, whose length is the size in the page header. It is an error if the data
// is shorter or longer. The caller has compared the declared size with the limit, so a
// decompression bomb cannot allocate more.
func decompressInto(codec int32, dst, src []byte) error {
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
		_, err = snappy.Decode(dst, src) // decodes into dst, which has the right size
	case 2:
		name, err = "gzip", inflate.Gzip(dst, src)
	case 4:
		name, err = "brotli", decodeBrotli(dst, src)
	case 6:
		name, err = "zstd", unzstd.Fill(dst, src, unzstd.Verify)
	case 7:
		name = "lz4"
		// lz4 cannot decode into an empty slice. A block without data is one zero byte.
		if len(dst) == 0 {
			if len(src) > 1 || len(src) == 1 && src[0] != 0 {
				return malformed(name + wrong)
			}
			return nil
		}
		if n, e := lz4.UncompressBlock(src, dst); e != nil || n != len(dst) {
			return malformed(name + wrong)
		}
	default:
		name := cmp.Or(
			map[int32]string{3: "LZO", 5: "LZ4 (the deprecated framing)"}[codec],
			fmt.Sprintf("number %d", codec),
		)
		return robocache.Unsupported("parquet", nil, "compression %s", name).
			WithHint("write the file with snappy or zstd")
	}
	if err != nil {
		return malformed(name + ": " + err.Error())
	}
	return nil
}

var brotlis = sync.Pool{New: func() any { return brotli.NewReader(nil) }}

// decodeBrotli fills dst. The window of the decoder is at most 16 MiB, because Parquet has no large
// windows.
//
// A panic inside github.com/andybalholm/brotli is bad data and not an internal error. The library
// is a translation of Google's C decoder, whose bounds checks were written for C's memory: a
// damaged stream may run past a Go slice. Only its Read is covered. A decoder that panicked is not
// reused.
func decodeBrotli(dst, src []byte) error {
	z := brotlis.Get().(*brotli.Reader)
	_ = z.Reset(bytes.NewReader(src))
	isWhole, err := readBrotli(z, dst)
	if err != nil {
		return err
	}
	if !isWhole {
		return errors.New("the page holds another number of bytes than declared")
	}
	_ = z.Reset(nil)
	brotlis.Put(z)
	return nil
}

// readBrotli fills dst and reports whether the stream ends there.
func readBrotli(z *brotli.Reader, dst []byte) (isWhole bool, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("the stream is damaged")
		}
	}()
	if _, err := io.ReadFull(z, dst); err != nil {
		return false, err
	}
	var one [1]byte
	n, err := z.Read(one[:])
	return n == 0 && err == io.EOF, nil
}
