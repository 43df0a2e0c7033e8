package loader

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Align says how streams come onto a uniform timeline: the keywords of Episode.align in Python.
type Align struct {
	Hz     *robocache.Rate     `json:"hz,omitempty"`
	Extent string              `json:"extent,omitempty"` // "intersection" (default) | "union" | a stream key
	Modes  map[string]string   `json:"modes,omitempty"`  // key → linear, nearest, previous, next, slerp, angle, mean
	Edge   PerKey[string]      `json:"edge,omitzero"`    // clamp (default), mask, extrapolate, error
	MaxGap PerKey[Duration]    `json:"max_gap,omitzero"` // 0 = none
	Offset map[string]Duration `json:"offset,omitempty"` // added to a stream's stamps
	Clock  map[string]string   `json:"clock,omitempty"`  // recordings with several clocks a stream
	Times  json.RawMessage     `json:"times,omitempty"`  // given targets: an episode's own affair, not a loader's
}

func (a *Align) check() error {
	if len(a.Times) > 0 && string(a.Times) != "null" {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Msg: "align times= in a loader", Hint: "give hz=; times= is for one episode's align"}
	}
	if len(a.Clock) > 0 {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Msg: "align clock=", Hint: "the streams of this format have one clock each; leave clock out"}
	}
	if a.Hz == nil || a.Hz.Zero() {
		return misuse("align", "hz", "none")
	}
	return nil
}

// Duration is int64 ns. In JSON an integer is nanoseconds, a number with a point or an exponent is seconds.
type Duration int64

// UnmarshalJSON tells seconds from nanoseconds by how the number is written.
func (d *Duration) UnmarshalJSON(b []byte) error {
	s := string(b)
	if s == "null" {
		*d = 0
		return nil
	}
	if strings.ContainsAny(s, ".eE") {
		var f float64
		if err := json.Unmarshal(b, &f); err != nil || math.IsNaN(f) || math.Abs(f) > 4e9 {
			return misuse("duration", "seconds as float or nanoseconds as int", clip(s))
		}
		*d = Duration(math.RoundToEven(f * 1e9))
		return nil
	}
	var n int64
	if err := json.Unmarshal(b, &n); err != nil {
		return misuse("duration", "seconds as float or nanoseconds as int", clip(s))
	}
	*d = Duration(n)
	return nil
}

// PerKey is one value for all keys, or a value a key.
type PerKey[T any] struct {
	All  *T
	Keys map[string]T
}

// Of gives the value of a key, or the zero value.
func (p PerKey[T]) Of(key string) (v T) {
	if x, ok := p.Keys[key]; ok {
		return x
	}
	if p.All != nil {
		return *p.All
	}
	return v
}

// IsZero lets JSON leave it out.
func (p PerKey[T]) IsZero() bool { return p.All == nil && len(p.Keys) == 0 }

// UnmarshalJSON reads a value or {key: value}.
func (p *PerKey[T]) UnmarshalJSON(b []byte) error {
	*p = PerKey[T]{}
	if string(b) == "null" {
		return nil
	}
	if len(b) > 0 && b[0] == '{' {
		return json.Unmarshal(b, &p.Keys)
	}
	p.All = new(T)
	return json.Unmarshal(b, p.All)
}

// MarshalJSON writes what UnmarshalJSON reads.
func (p PerKey[T]) MarshalJSON() ([]byte, error) {
	if p.All != nil {
		return json.Marshal(*p.All)
	}
	return json.Marshal(p.Keys)
}
