package options

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Constant is a number or a list of numbers that each sample of a source has. JSON integers are
// int64. Numbers with a point or an exponent are float32, and so is a list with such a number.
type Constant struct {
	Numbers []json.Number // at least one
	IsList  bool
}

// UnmarshalJSON reads a number or a list of numbers.
func (c *Constant) UnmarshalJSON(b []byte) error {
	if c.IsList = bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")); !c.IsList {
		b = []byte("[" + string(b) + "]")
	}
	err := json.Unmarshal(b, &c.Numbers)
	// A quoted number is a json.Number too, and null is an empty one.
	if err != nil || len(c.Numbers) == 0 || bytes.ContainsAny(b, `"n`) {
		return Misuse("constants", "a number, or a list of numbers", Clip(string(b)))
	}
	return nil
}

// DType returns the type of the values in a batch.
func (c Constant) DType() robocache.DType {
	for _, n := range c.Numbers {
		if strings.ContainsAny(string(n), ".eE") {
			return robocache.Float32
		}
	}
	return robocache.Int64
}

// Row returns the values as the bytes of a tensor.
func (c Constant) Row() ([]byte, error) {
	var out []byte
	for _, n := range c.Numbers {
		var err error
		if c.DType() == robocache.Float32 {
			var v float64
			v, err = strconv.ParseFloat(string(n), 32)
			out = binary.NativeEndian.AppendUint32(out, math.Float32bits(float32(v)))
		} else {
			var v int64
			v, err = strconv.ParseInt(string(n), 10, 64)
			out = binary.NativeEndian.AppendUint64(out, uint64(v))
		}
		if err != nil {
			return nil, Misuse(
				"constants",
				"numbers in the range of "+c.DType().String(),
				string(n),
			)
		}
	}
	return out, nil
}
