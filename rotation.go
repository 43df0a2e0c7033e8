package robocache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Rotation says that some neighbouring channels of a row are one rotation, and how they write it.
// Under slerp such channels are interpolated as the rotation that they are, along the shortest arc,
// and written back in their own form (kernel K21).
//
// In JSON it is {"at": 3, "form": "rotvec"}, or the form alone where the first channel is 0.
type Rotation struct {
	At   int    `json:"at"` // the first of its channels
	Form string `json:"form"`
}

// The forms of a rotation that are no Euler angles. Euler angles are named by their axes as scipy
// names them, in radians: "xyz" turns about fixed axes in that order (roll, pitch, yaw), "XYZ"
// about axes that turn along.
const (
	FormQuat   = "quat"   // four channels: x, y, z, w (or w first: slerp makes no difference)
	FormRotVec = "rotvec" // three: the axis times the angle, in radians
)

// Width is the number of its channels; 0 of an unknown form.
func (r Rotation) Width() int {
	switch {
	case r.Form == FormQuat:
		return 4
	case r.Form == FormRotVec || r.Euler():
		return 3
	}
	return 0
}

// Euler says that the form is three Euler angles: axes of one case, no two equal ones side by side.
func (r Rotation) Euler() bool {
	f := r.Form
	lower := strings.ToLower(f)
	return len(f) == 3 && (f == lower || f == strings.ToUpper(f)) &&
		strings.Trim(lower, "xyz") == "" &&
		f[0] != f[1] &&
		f[1] != f[2]
}

// RepeatRotation fills a row with rotations of one form; nil where it does not come out even.
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

// CheckRotations proves that rotations lie inside a row, none on another.
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

// UnmarshalJSON reads an object, or a form.
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
