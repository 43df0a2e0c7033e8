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

// ErrRoom is the cause of the error if the data is longer than dst.
var ErrRoom = errors.New("the data is longer than expected")

var errDamaged = errors.New("the data is damaged or ends early")

// Zlib decompresses a zlib stream of len(dst) bytes.
func Zlib(dst, src []byte) error { return inflateExactly(ZlibStream, dst, src) }

// Raw decompresses a deflate stream of len(dst) bytes.
func Raw(dst, src []byte) error { return inflateExactly(RawDeflate, dst, src) }

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
		return sizeError(GzipMember, len(dst), fmt.Sprintf("%d bytes", at), nil)
	}
	return nil
}

func inflateExactly(kind Kind, dst, src []byte) error {
	n, _, err := Some(kind, dst, src)
	if err == nil && n != len(dst) {
		return sizeError(kind, len(dst), fmt.Sprintf("%d bytes", n), nil)
	}
	return err
}

// Some decompresses one stream of at most len(dst) bytes. It returns the number of bytes written to
// dst and the number of bytes read from src. If dst is too small, the error is ErrRoom (errors.Is).
// Damaged data may also cause ErrRoom.
func Some(kind Kind, dst, src []byte) (written, read int, err error) {
	written, read, err = inflateStream(kind, dst, src)
	if err != nil {
		return 0, 0, sizeError(kind, len(dst), "", err)
	}
	return written, read, nil
}

func sizeError(kind Kind, want int, got string, err error) error {
	return robocache.Malformed("inflate", nil, "%s data", kind.String()).
		Expected(fmt.Sprintf("%d bytes", want), got).WithCause(err)
}
