package robocache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Rate is a rational number of rows a second, Num/Den > 0, in lowest terms.
type Rate struct{ Num, Den int64 }

// RateOf parses a rate: an integer, a decimal number or a fraction, exactly as written. 29.97 is
// 2997/100, and 30000/1001 is a fraction.
func RateOf(text string) (Rate, error) {
	bad := func() (Rate, error) {
		return Rate{}, Malformed("", nil, "").
			Expected("a rate > 0 such as 30, 29.97 or 30000/1001", strconv.Quote(text))
	}
	num, den, fraction := strings.Cut(text, "/")
	var n, d int64
	if fraction {
		var err1, err2 error
		n, err1 = strconv.ParseInt(num, 10, 64)
		d, err2 = strconv.ParseInt(den, 10, 64)
		if err1 != nil || err2 != nil {
			return bad()
		}
	} else {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || f <= 0 || f > 1e9 {
			return bad()
		}
		d = 1
		for f != math.Trunc(f) && d < 1e9 {
			// The digits of the shortest decimal form count: 29.97 is 2997/100, not the nearest
			// binary number.
			s := strconv.FormatFloat(f, 'f', -1, 64)
			i := strings.IndexByte(s, '.')
			digits := min(len(s)-i-1, 9)
			d = int64(math.Pow10(digits))
			f = math.Round(f * float64(d))
			break
		}
		n = int64(f)
	}
	if n <= 0 || d <= 0 {
		return bad()
	}
	g := greatestDivisor(n, d)
	return Rate{n / g, d / g}, nil
}

func greatestDivisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Zero reports whether the rate is unknown.
func (r Rate) Zero() bool { return r.Num == 0 }

// Float returns the rate in Hz.
func (r Rate) Float() float64 {
	if r.Den == 0 {
		return 0
	}
	return float64(r.Num) / float64(r.Den)
}

// Nanos returns the time in ns of row k after row 0: k·1e9·Den/Num, rounded to the nearest integer
// and halves upwards. It computes with 128 bits.
func (r Rate) Nanos(k int64) int64 {
	neg := k < 0
	if neg {
		// floor((2k·1e9·den + num) / 2num) of a negative k is the negated value of -k with halves
		// rounded downwards.
		k = -k
	}
	hi, lo := bits.Mul64(uint64(k), 2_000_000_000)
	// (hi,lo)·Den: k < 2^40 and Den ≤ 1e9 keep hi·Den below 2^64.
	h2, l2 := bits.Mul64(lo, uint64(r.Den))
	h2 += hi * uint64(r.Den)
	num := uint64(r.Num)
	add := num
	if neg {
		add = num - 1
	}
	l3, carry := bits.Add64(l2, add, 0)
	h3 := h2 + carry
	if h3 >= 2*num {
		return math.MaxInt64
	}
	q, _ := bits.Div64(h3, l3, 2*num)
	if neg {
		return -int64(q)
	}
	return int64(q)
}

// ErrNoClock is the cause of errors of operations that need times of rows, if the rows have no
// timestamps and no known rate.
var ErrNoClock = errors.New("the rows keep no clock, and nothing says their rate")

// NoClock returns an error with the cause ErrNoClock. why states what was looked for, or what needs
// times.
func NoClock(op string, where Where, why string) *Error {
	return Misuse(op, where, "%s", why).WithCause(ErrNoClock).
		WithHint("say the rate of the rows: %s", Option("rows_hz", 10))
}

// KeepsTime reports whether the rows of a dataset have times, by timestamps or by a rate.
func KeepsTime(ctx context.Context, ds Dataset) bool {
	info := ds.Info()
	for e := range info.Episodes {
		if info.FPS.Zero() && info.Clock == "" && ds.Len(e) > 0 {
			_, err := ds.Times(ctx, e, "")
			return !errors.Is(err, ErrNoClock)
		}
	}
	return true
}

// KnowsTime reports whether the rows of a dataset have times that are not only assumed. A format
// that assumes a rate reports that by a finding.
func KnowsTime(ctx context.Context, ds Dataset) bool {
	for _, f := range ds.Info().Findings {
		if f.Code == "rate-assumed" || f.Code == "no-timestamps" {
			return false
		}
	}
	return KeepsTime(ctx, ds)
}

// CheckGrid returns ErrMisuse if rows without known times would be resampled to hz, because an
// assumed rate would pass for a recorded one.
func CheckGrid(ctx context.Context, ds Dataset, hz Rate) error {
	if hz.Zero() || KnowsTime(ctx, ds) {
		return ctx.Err()
	}
	info := ds.Info()
	clocks := info.clocksNotUsed()
	msg := Option("hz") + " resamples, but "
	switch fps := info.FPS; {
	case clocks.faults != "" && fps.Zero():
		msg += clocks.state + ", and nothing says their rate: " + clocks.faults
	case clocks.faults != "":
		msg += fmt.Sprintf("%s, and %s Hz is only assumed: %s", clocks.state, fps, clocks.faults)
	case fps.Zero():
		msg += "the rows keep no clock, and nothing says their rate"
	default:
		msg += fmt.Sprintf("the rows keep no clock: %s Hz is only assumed", fps)
	}
	advice := ""
	if clocks.hint != "" {
		advice = clocks.hint + "; or state their rate: "
	}
	return Misuse("", nil, "%s", msg).
		WithHint("%s%s says that the rows are at %s Hz; with the rate that they were recorded at "+
			"in %s, %s resamples them",
			advice, Option("rows_hz", hz), hz, Option("rows_hz"), Option("hz", hz))
}

// String returns the rate in Hz as a number, if at most six decimals write it exactly, else as a
// fraction.
func (r Rate) String() string {
	if r.Den == 1 {
		return strconv.FormatInt(r.Num, 10)
	}
	if f := r.Float(); strconv.FormatFloat(f, 'f', -1, 64) != "" && f*1e6 == math.Trunc(f*1e6) {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprintf("%d/%d", r.Num, r.Den)
}

// MarshalJSON writes the rate as a number if that is exact, else as a fraction in a string.
func (r Rate) MarshalJSON() ([]byte, error) {
	if r.Zero() {
		return []byte("null"), nil
	}
	s := r.String()
	if strings.Contains(s, "/") {
		s = strconv.Quote(s)
	}
	return []byte(s), nil
}

// UnmarshalJSON reads a number or a fraction.
func (r *Rate) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	if s == "null" || s == "" {
		*r = Rate{}
		return nil
	}
	v, err := RateOf(s)
	if err != nil {
		return err
	}
	*r = v
	return nil
}
