package inflate

import (
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// Kind is a container of deflate data.
type Kind int

const (
	RawDeflate Kind = iota
	ZlibStream
	GzipMember
)

func (k Kind) String() string { return [...]string{"deflate", "zlib", "gzip"}[k] }

// ErrRoom says that the data holds more than fits into dst.
var ErrRoom = errors.New("the data is longer than expected")

var errData = errors.New("the data is damaged or ends early")

// Zlib decompresses a zlib stream of len(dst) bytes.
func Zlib(dst, src []byte) error { return whole(ZlibStream, dst, src) }

// Raw decompresses a deflate stream of len(dst) bytes.
func Raw(dst, src []byte) error { return whole(RawDeflate, dst, src) }

// Gzip decompresses all members of a gzip file, len(dst) bytes together.
func Gzip(dst, src []byte) error {
	at := 0
	for {
		n, read, err := Some(GzipMember, dst[at:], src)
		if err != nil {
			return err
		}
		at += n
		src = src[read:]
		for len(src) > 0 && src[0] == 0 {
			src = src[1:]
		}
		if len(src) == 0 {
			break
		}
	}
	if at != len(dst) {
		return failure(GzipMember, len(dst), fmt.Sprintf("%d bytes", at), nil)
	}
	return nil
}

func whole(kind Kind, dst, src []byte) error {
	n, _, err := Some(kind, dst, src)
	if err == nil && n != len(dst) {
		return failure(kind, len(dst), fmt.Sprintf("%d bytes", n), nil)
	}
	return err
}

// Some decompresses one stream of at most len(dst) bytes: written of them, from the first read
// bytes of src. Where dst is too small, the error is ErrRoom (errors.Is); of damaged data it may be
// that too.
func Some(kind Kind, dst, src []byte) (written, read int, err error) {
	written, read, err = some(kind, dst, src)
	if err != nil {
		return 0, 0, failure(kind, len(dst), "", err)
	}
	return written, read, nil
}

func failure(kind Kind, want int, got string, err error) error {
	return robocache.Malformed("inflate", nil, "%s data", kind.String()).
		Expected(fmt.Sprintf("%d bytes", want), got).WithCause(err)
}
