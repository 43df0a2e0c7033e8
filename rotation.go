package robocache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Rotation states that neighbouring channels of a row are one rotation, and in which form. Mode
// slerp interpolates such channels as a rotation along the shortest arc and writes the same form
// (kernel K21).
//
// In JSON it is {"at": 3, "form": "rotvec"}, or only the form if the first channel is 0.
type Rotation struct {
	At   int    `json:"at"` // the first of its channels
	Form string `json:"form"`
}

// The forms of a rotation other than Euler angles. Euler angles are in radians and named by their
// axes as in scipy: "xyz" rotates about fixed axes in that order (roll, pitch, yaw), "XYZ" about
// axes that rotate with the body.
const (
	FormQuat   = "quat"   // four channels: x, y, z, w (or w first: slerp makes no difference)
	FormRotVec = "rotvec" // three: the axis times the angle, in radians
)

// Width returns the number of channels of the rotation, or 0 if the form is unknown.
func (r Rotation) Width() int {
	switch {
	case r.Form == FormQuat:
		return 4
	case r.Form == FormRotVec || r.Euler():
		return 3
	}
	return 0
}

// Euler reports whether the form is three Euler angles: axes of the same case, no two equal ones in
// a row.
func (r Rotation) Euler() bool {
	f := r.Form
	lower := strings.ToLower(f)
	return len(f) == 3 && (f == lower || f == strings.ToUpper(f)) &&
		strings.Trim(lower, "xyz") == "" &&
		f[0] != f[1] &&
		f[1] != f[2]
}

// RepeatRotation returns the rotations of one form that fill a row of elements. It returns nil if
// they do not fill it exactly.
func RepeatRotation(form string, elements int) []Rotation {
	w := Rotation{Form: form}.Width()
	if w == 0 || elements == 0 || elements%w != 0 {
		return nil
	}
	var out []Rotation
	for at := 0; at < elements; at += w {
		out = append(out, Rotation{at, form})
	}
	return out
}

// CheckRotations returns ErrMisuse if a rotation has an unknown form, exceeds a row of elements, or
// overlaps another one.
func CheckRotations(list []Rotation, elements int) error {
	bad := func(want, got string) error {
		return Misuse("align", nil, "rotations").Expected(want, got)
	}
	for i, r := range list {
		w := r.Width()
		switch {
		case w == 0:
			return bad(
				`the form "rotvec", "quat", or Euler angles by their axes ("xyz" fixed, "XYZ" turning along)`,
				strconv.Quote(r.Form),
			)
		case r.At < 0 || r.At > elements-w:
			return bad(
				fmt.Sprintf("%d channels of %s inside a row of %d", w, r.Form, elements),
				"from channel "+strconv.Itoa(r.At),
			)
		}
		for _, o := range list[:i] {
			if r.At < o.At+o.Width() && o.At < r.At+w {
				return bad(
					"each channel once",
					fmt.Sprintf("%s at %d and %s at %d", o.Form, o.At, r.Form, r.At),
				)
			}
		}
	}
	return nil
}

// UnmarshalJSON reads an object, or a string with the form.
func (r *Rotation) UnmarshalJSON(b []byte) error {
	*r = Rotation{}
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &r.Form)
	}
	if len(b) > 0 && b[0] != '{' {
		return Misuse(
			"",
			nil,
			"rotation",
		).Expected("an object, or the form of a rotation", string(b))
	}
	type plain Rotation
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	return dec.Decode((*plain)(r))
}
