package unzstd

import (
	"errors"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// Sums says what becomes of the check sums that frames carry.
type Sums bool

const (
	Verify Sums = true
	Ignore Sums = false // the caller's container has its own
)

// ErrRoom says that the data holds more than fits into dst.
var ErrRoom = errors.New("the data is longer than expected")

var errData = errors.New("the data is damaged or ends early")

// whole is the need of who wants all.
const whole = math.MaxInt

// Decode decompresses all frames of src, and gives how many bytes they are, at most len(dst).
// Where dst is too small, the error is ErrRoom (errors.Is); of damaged data it may be that too.
func Decode(dst, src []byte, sums Sums) (int, error) {
	n, err := some(dst, src, whole, sums)
	if err != nil {
		return 0, failure(len(dst), err)
	}
	return n, nil
}

// Fill is Decode of data that must have len(dst) bytes.
func Fill(dst, src []byte, sums Sums) error {
	n, err := Decode(dst, src, sums)
	if err == nil && n != len(dst) {
		err = robocache.Malformed("zstd", nil, "").
			Expected(fmt.Sprintf("%d bytes", len(dst)), fmt.Sprint(n))
	}
	return err
}

// Prefix decompresses until need bytes are there, or a little more: n are, and dst has room for all
// that the first frame declares. n < need where the data holds no more, or with an error where it
// is damaged or cut; then too the n bytes are right. Check sums are of whole frames: a part has
// none.
func Prefix(dst, src []byte, need int) (n int, err error) {
	n, err = some(dst, src, min(need, whole-1), Ignore)
	if err != nil && n < need {
		return n, failure(len(dst), err)
	}
	return n, nil
}

func failure(room int, err error) error {
	var e *robocache.Error
	if errors.As(err, &e) {
		return err
	}
	return robocache.Malformed("zstd", nil, "").Expected(fmt.Sprintf("at most %d bytes", room), "").
		WithCause(err)
}
