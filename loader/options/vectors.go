package options

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/vector"
)

// Vector is a key of the batch that is made of columns of numeric streams.
type Vector struct {
	Key string
	vector.Spec
	drawKey string // the key as configured, before SplitParts
}

// Vectors is a JSON object by key whose order is kept. A vector with the key of a stream is
// delivered in its place.
type Vectors []Vector

// UnmarshalJSON reads {key: vector, …}.
func (v *Vectors) UnmarshalJSON(b []byte) (err error) {
	read := func(key string, raw json.RawMessage) (x Vector, err error) {
		x.Key = key
		if x.Spec, err = vector.ParseSpec(raw); err != nil {
			err = robocache.Misuse("loader", nil, "%v", err)
		}
		return x, err
	}
	*v, err = readKeys(b, "vectors", "a vector", read)
	return err
}

// MarshalJSON writes the object in its order.
func (v Vectors) MarshalJSON() ([]byte, error) {
	return writeKeys(v, func(x *Vector) (string, any) { return x.Key, x.Spec })
}

// Of returns the vector of a key, or nil.
func (v Vectors) Of(key string) *Vector {
	for i := range v {
		if v[i].Key == key {
			return &v[i]
		}
	}
	return nil
}

// Needs returns the keys of the streams that the vectors read, sorted.
func (v Vectors) Needs() (keys []string) {
	for i := range v {
		keys = append(keys, v[i].Spec.Needs()...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// DrawKey returns the key that selects the random draws of the vector.
func (v *Vector) DrawKey() string {
	if v.drawKey != "" {
		return v.drawKey
	}
	return v.Key
}

// SplitParts returns the vectors as they are delivered: one per part for those with Separate.
func (v Vectors) SplitParts() Vectors {
	var out Vectors
	for _, x := range v {
		if !x.Separate {
			out = append(out, x)
			continue
		}
		for i := range x.Parts {
			one := x
			one.Key, one.drawKey = x.Key+"."+x.Parts[i].Label(), x.Key
			one.Parts, one.Separate = x.Parts[i:i+1], false
			out = append(out, one)
		}
	}
	return out
}

// check rejects vectors that no dataset could deliver. allowsDropout is false for a Map, whose items
// have no random draws.
func (v Vectors) check(allowsDropout bool) error {
	seen := map[string]bool{}
	for _, x := range v.SplitParts() {
		for _, key := range []string{x.Key, x.Mask} {
			if key != "" && seen[key] {
				return robocache.Misuse("loader", nil, "vectors: two results have the key %s", key).
					WithHint("Pass another key, mask, or name of a part.")
			}
			seen[key] = true
		}
		if err := x.checkSizes(); err != nil {
			return err
		}
		if x.Dropout > 0 && !allowsDropout {
			return robocache.Unsupported("map", nil, "dropout of the vector %s: its draws go by "+
				"the epoch, and items have none", x.Key).
				WithHint("Use a Loader, or a vector without dropout.")
		}
	}
	for i := range v {
		if x := &v[i]; x.Separate && (x.Width > 0 || x.Mask != "") {
			return x.misuse("width and mask", "none with separate", "both")
		}
	}
	return nil
}

// checkSizes rejects numbers out of range.
func (v *Vector) checkSizes() error {
	rows := len(v.Offsets())
	switch {
	case len(v.Parts) == 0:
		return v.misuse("parts", "at least one part", "none")
	case rows == 0 || rows > MaxSteps || slices.Min(v.Offsets()) < -MaxSteps ||
		slices.Max(v.Offsets()) > MaxSteps:
		return v.misuse("rows", fmt.Sprintf("1 to 2^20 offsets within ±%d", MaxSteps),
			Clip(fmt.Sprint(v.Rows)))
	case v.Length != 0 && (v.Length < rows || v.Length > MaxSteps || v.Rows == nil):
		return v.misuse("length", fmt.Sprintf("at least the number of rows, %d", rows),
			fmt.Sprint(v.Length))
	case v.Width < 0 || v.Width > 1<<16:
		return v.misuse("width", "0 to 65536", fmt.Sprint(v.Width))
	case !(v.Dropout >= 0 && v.Dropout <= 1):
		return v.misuse("dropout", "a probability", fmt.Sprint(v.Dropout))
	case v.DType != "" && v.DType != "float32" && v.DType != "float64":
		return v.misuse("dtype", `"float32" or "float64"`, v.DType)
	}
	for i := range v.Parts {
		if r := v.Parts[i].ReferenceRow; r < -MaxSteps || r > MaxSteps {
			return v.misuse("reference_row", fmt.Sprintf("within ±%d", MaxSteps), fmt.Sprint(r))
		}
	}
	return nil
}

// misuse returns the error of an option of the vector.
func (v *Vector) misuse(option, want, got string) error {
	return Misuse("vectors: "+v.Key+": "+option, want, got)
}
