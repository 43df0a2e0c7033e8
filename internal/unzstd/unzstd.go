package unzstd

import (
	"errors"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// Sums selects whether the checksums of frames are verified.
type Sums bool

const (
	Verify Sums = true
	Ignore Sums = false // for callers whose container has its own checksums
)

// ErrRoom is the cause of the error if the data is longer than dst.
var ErrRoom = errors.New("the data is longer than expected")

var errDamaged = errors.New("the data is damaged or ends early")

// needAll is the need of callers that decompress everything.
const needAll = math.MaxInt

// Decode decompresses all frames of src and returns their size, at most len(dst). If dst is too
// small, the error is ErrRoom (errors.Is). Damaged data may also cause ErrRoom.
func Decode(dst, src []byte, sums Sums) (int, error) {
	n, err := unzstdFrames(dst, src, needAll, sums)
	if err != nil {
		return 0, decodeError(len(dst), err)
	}
	return n, nil
}

// Fill is Decode for data that must have exactly len(dst) bytes.
func Fill(dst, src []byte, sums Sums) error {
	n, err := Decode(dst, src, sums)
	if err == nil && n != len(dst) {
		err = robocache.Malformed("zstd", nil, "").
			Expected(fmt.Sprintf("%d bytes", len(dst)), fmt.Sprint(n))
	}
	return err
}

// Prefix decompresses until dst contains need bytes, or slightly more, and returns their number.
// dst must be large enough for the size that the first frame declares. n is less than need only if
// the data is shorter, damaged or truncated. The first n bytes of dst are correct even if err is
// not nil. Checksums are not verified, because they cover whole frames.
func Prefix(dst, src []byte, need int) (n int, err error) {
	n, err = unzstdFrames(dst, src, min(need, needAll-1), Ignore)
	if err != nil && n < need {
		return n, decodeError(len(dst), err)
	}
	return n, nil
}

func decodeError(room int, err error) error {
	var e *robocache.Error
	if errors.As(err, &e) {
		return err
	}
	return robocache.Malformed("zstd", nil, "").Expected(fmt.Sprintf("at most %d bytes", room), "").
		WithCause(err)
}
