package robocache

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// Drift is how fast a stream's clock runs against the one that counts, and where the two agree.
//
// A clock that gains PPM parts in a million timestamps what happens dt after the moment At as At +
// dt·(1 + PPM/10⁶). Correct undoes that:
//
//	t = At + (timestamp − At) / (1 + PPM/10⁶)
//
// So the sign is that of the fault: a clock that runs fast has a positive drift. It is what
// `robocache doctor` prints, and `synth --skew` makes.
//
// In JSON it is the number PPM, or {"ppm": …, "at": …}, where at is read by ParseMoment: seconds as
// a number, or text with a unit.
type Drift struct {
	PPM   float64
	At    int64 // ns, on the stream's own clock
	Fixed bool  // At is given; else it is the stream's first timestamp in each episode
}

// maxDrift bounds a drift in ppm: a clock that is wrong by a tenth is another unit.
const maxDrift = 1e5

// IsZero says that nothing is corrected.
func (d Drift) IsZero() bool { return d.PPM == 0 }

// Check refuses what no clock does.
func (d Drift) Check() error {
	if !(math.Abs(d.PPM) <= maxDrift) || d.At <= -1<<62 || d.At >= 1<<62 {
		return Misuse("", nil, "drift").
			Expected("within ±100000 parts in a million, at a time within ±2^62 ns", strconv.FormatFloat(d.PPM, 'g', -1, 64)+" at "+strconv.FormatInt(d.At, 10))
	}
	return nil
}

// Correct gives the times of timestamps in ns, rounded to the nearest. They are changed in place;
// ascending ones stay ascending.
func (d Drift) Correct(timestamps []int64) {
	if d.IsZero() || len(timestamps) == 0 {
		return
	}
	at := timestamps[0]
	if d.Fixed {
		at = d.At
	}
	// What is taken off is small beside the timestamp: in float64 it is exact to far less than a
	// nanosecond.
	rate := float64(d.PPM * 1e-6) // not fused into the sum below
	gain := rate / (1 + rate)
	for i, t := range timestamps {
		timestamps[i] = t - int64(math.RoundToEven(float64(t-at)*gain))
	}
}

// UnmarshalJSON reads a number of ppm, or an object.
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

// MarshalJSON writes what UnmarshalJSON reads.
func (d Drift) MarshalJSON() ([]byte, error) {
	if !d.Fixed {
		return json.Marshal(d.PPM)
	}
	return json.Marshal(map[string]any{"ppm": d.PPM, "at": NanosText(d.At)})
}
