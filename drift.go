package robocache

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// Drift is the rate error of a stream's clock relative to the reference clock, and the moment at
// which both agree.
//
// A clock with a drift of PPM parts in a million timestamps an event dt after the moment At as
// At + dt·(1 + PPM/10⁶). Correct inverts that:
//
//	t = At + (timestamp − At) / (1 + PPM/10⁶)
//
// A clock that runs fast has a positive drift. `robocache doctor` prints this value, and
// `synth --skew` applies it.
//
// In JSON a Drift is the number PPM, or {"ppm": …, "at": …}. ParseMoment reads at: seconds as a
// number, or text with a unit.
type Drift struct {
	PPM   float64
	At    int64 // ns, on the stream's own clock
	Fixed bool  // At is given; else it is the stream's first timestamp in each episode
}

// maxDrift bounds a drift in ppm. A clock that differs by a tenth counts in another unit.
const maxDrift = 1e5

// IsZero reports whether the drift corrects nothing.
func (d Drift) IsZero() bool { return d.PPM == 0 }

// Check returns ErrMisuse if the drift or its moment is beyond any real clock.
func (d Drift) Check() error {
	if !(math.Abs(d.PPM) <= maxDrift) || d.At <= -1<<62 || d.At >= 1<<62 {
		return Misuse("", nil, "drift").
			Expected("within ±100000 parts in a million, at a time within ±2^62 ns",
				strconv.FormatFloat(d.PPM, 'g', -1, 64)+" at "+strconv.FormatInt(d.At, 10))
	}
	return nil
}

// Correct replaces timestamps in ns by the corrected times, rounded to the nearest nanosecond.
// Ascending timestamps stay ascending.
func (d Drift) Correct(timestamps []int64) {
	if d.IsZero() || len(timestamps) == 0 {
		return
	}
	at := timestamps[0]
	if d.Fixed {
		at = d.At
	}
	// The correction is small compared to the timestamp, so float64 is exact to far less than a
	// nanosecond. The conversion prevents a fused multiply-add.
	rate := float64(d.PPM * 1e-6)
	gain := rate / (1 + rate)
	for i, t := range timestamps {
		timestamps[i] = t - int64(math.RoundToEven(float64(t-at)*gain))
	}
}

// UnmarshalJSON reads a number of ppm, or an object with ppm and at.
func (d *Drift) UnmarshalJSON(b []byte) error {
	*d = Drift{}
	bad := func(got string) error {
		return Misuse("", nil, "drift").
			Expected(`a number of ppm, or {"ppm": …, "at": seconds}`, got)
	}
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] != '{' {
		if json.Unmarshal(b, &d.PPM) != nil {
			return bad(string(b))
		}
		return nil
	}
	var o struct {
		PPM *float64        `json:"ppm"`
		At  json.RawMessage `json:"at"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if dec.Decode(&o) != nil {
		return bad(string(b))
	}
	if o.PPM == nil {
		return bad(string(b))
	}
	d.PPM = *o.PPM
	if len(o.At) == 0 || string(o.At) == "null" {
		return nil
	}
	var err error
	d.Fixed = true
	d.At, err = ParseMoment(o.At)
	return err
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (d Drift) MarshalJSON() ([]byte, error) {
	if !d.Fixed {
		return json.Marshal(d.PPM)
	}
	return json.Marshal(map[string]any{"ppm": d.PPM, "at": NanosText(d.At)})
}
