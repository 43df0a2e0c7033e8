package robocache

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
)

// timeUnits are the suffixes of a time as text, and their nanoseconds.
var timeUnits = []struct {
	suffix string
	nanos  int64
}{
	{"ns", 1},
	{"us", 1e3},
	{"µs", 1e3},
	{"μs", 1e3},
	{"ms", 1e6},
	{"min", 60e9},
	{"s", 1e9},
	{"h", 3600e9},
}

const (
	timeSyntax = `seconds as a number, or text with a unit, as "50ms"`
	// longestDuration bounds a duration without a unit, in seconds. A number of nanoseconds exceeds
	// it from 86 µs on.
	longestDuration = 86_400
)

// ParseDuration reads a duration in JSON: a number of seconds, or text with a unit: "50ms", "1.5
// s", "200ns". A number beyond a day is Misuse that names both readings, because it is likely to be
// nanoseconds.
func ParseDuration(token []byte) (ns int64, err error) {
	return parseTime(
		token,
		func(s float64) bool { return -longestDuration <= s && s <= longestDuration },
	)
}

// ParseMoment reads a moment on a clock as ParseDuration reads a duration. A number is plausible
// within a year of zero, and as seconds of the Unix epoch between 2001 and 2286.
func ParseMoment(token []byte) (ns int64, err error) {
	return parseTime(
		token,
		func(s float64) bool { return -3.2e7 <= s && s <= 3.2e7 || s >= 1e9 && s <= 1e10 },
	)
}

func parseTime(token []byte, plausible func(seconds float64) bool) (int64, error) {
	bad := func() (int64, error) {
		return 0, Misuse("time", nil, "").Expected(timeSyntax, clipText(string(token)))
	}
	var text string
	token = bytes.TrimSpace(token)
	hasUnit := len(token) > 0 && token[0] == '"'
	unit := int64(1e9)
	if !hasUnit {
		text = string(token)
	} else {
		if json.Unmarshal(token, &text) != nil {
			return bad()
		}
		text, unit = splitUnit(strings.TrimSpace(text))
	}
	if len(text) > 64 || unit == 0 {
		return bad()
	}
	if f, err := strconv.ParseFloat(text, 64); err != nil || !(f > -1e20 && f < 1e20) ||
		strings.ContainsAny(text, "xX_pP") {
		return bad()
	} else if !hasUnit &&
		!plausible(f) {
		n := strings.TrimSuffix(text, ".0")
		return 0, Misuse(
			"time",
			nil,
			"%s is %s s (%s), and as nanoseconds %s",
			n,
			n,
			formatDays(f),
			humanNanos(f),
		).
			Expected(timeSyntax, text).
			WithHint("write %q for nanoseconds, or %q if seconds are meant", n+"ns", n+"s")
	}
	// In rationals, so that no digit of a nanosecond is lost.
	exact, ok := new(big.Rat).SetString(text)
	if !ok {
		return bad()
	}
	ns := roundEven(exact.Mul(exact, new(big.Rat).SetInt64(unit)))
	if !ns.IsInt64() || ns.Int64() <= -1<<62 || ns.Int64() >= 1<<62 {
		return bad()
	}
	return ns.Int64(), nil
}

// splitUnit cuts the unit off a text. The unit is 0 if there is none.
func splitUnit(text string) (number string, unit int64) {
	for _, u := range timeUnits {
		if n, ok := strings.CutSuffix(text, u.suffix); ok {
			return strings.TrimSpace(n), u.nanos
		}
	}
	return text, 0
}

// roundEven returns the nearest integer, the even one of two.
func roundEven(x *big.Rat) *big.Int {
	twice := new(big.Int).Lsh(x.Num(), 1)
	q, r := new(
		big.Int,
	).DivMod(twice.Add(twice, x.Denom()), new(big.Int).Lsh(x.Denom(), 1), new(big.Int))
	if r.Sign() == 0 && q.Bit(0) == 1 {
		q.Sub(q, big.NewInt(1))
	}
	return q
}

// formatDays writes a number of seconds for people.
func formatDays(s float64) string {
	d := s / 86_400
	if d > -1000 && d < 1000 {
		return strconv.FormatFloat(d, 'f', 1, 64) + " days"
	}
	return strconv.FormatFloat(d/365.25, 'g', 3, 64) + " years"
}

// humanNanos writes nanoseconds in the largest unit that fits.
func humanNanos(ns float64) string {
	for _, u := range []struct {
		name  string
		nanos float64
	}{{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}} {
		if ns >= u.nanos || ns <= -u.nanos {
			return strconv.FormatFloat(ns/u.nanos, 'g', 10, 64) + " " + u.name
		}
	}
	return strconv.FormatFloat(ns, 'g', 10, 64) + " ns"
}

func clipText(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// NanosText writes nanoseconds as ParseDuration and ParseMoment read them.
func NanosText(ns int64) string { return strconv.FormatInt(ns, 10) + "ns" }
