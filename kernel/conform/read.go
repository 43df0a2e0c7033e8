package conform

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// array is a tensor in a vector.
type array struct {
	DType  robocache.DType `json:"dtype"`
	Shape  []int           `json:"shape"`
	Stride []int           `json:"stride"`
	Base   int             `json:"base"`
	Skip   int             `json:"skip"` // bytes before the memory, so that elements are not aligned
	Memory []string        `json:"memory"`
}

// options are what vectors say of a rule.
type options struct {
	Mode   kernel.Mode `json:"mode"`
	Edge   kernel.Edge `json:"edge"`
	MaxGap int64       `json:"max_gap,string"`
	Before int64       `json:"before,string"`
	After  int64       `json:"after,string"`
	Period string      `json:"period"`
	Lo     string      `json:"lo"`
}

// reader collects the errors of many small readings.
type reader struct{ err error }

// bits reads the hexadecimal bits of a number; none are 0.
func (r *reader) bits(s string, size int) uint64 {
	if s == "" {
		return 0
	}
	u, err := strconv.ParseUint(s, 16, size)
	r.err = errors.Join(r.err, err)
	return u
}

func (r *reader) float32(s string) float32 { return math.Float32frombits(uint32(r.bits(s, 32))) }
func (r *reader) float64(s string) float64 { return math.Float64frombits(r.bits(s, 64)) }

func (r *reader) floats(dst []float32, s []string) {
	if len(s) != len(dst) {
		r.err = errors.Join(r.err, fmt.Errorf("%d numbers, want %d", len(s), len(dst)))
		return
	}
	for i, x := range s {
		dst[i] = r.float32(x)
	}
}

func (r *reader) rule(o *options) kernel.Rule {
	out := kernel.Rule{Mode: o.Mode, Edge: o.Edge, MaxGap: o.MaxGap, Before: o.Before, After: o.After, Period: r.float64(o.Period)}
	if o.Lo != "" {
		lo := r.float64(o.Lo)
		out.Lo = &lo
	}
	return out
}

func (r *reader) tensor(a *array) kernel.Tensor {
	t := kernel.Tensor{DType: a.DType, Shape: a.Shape, Stride: a.Stride, Base: a.Base, Data: make([]byte, a.Skip, a.Skip+8*len(a.Memory))}
	for _, h := range a.Memory {
		b, err := hex.DecodeString(h)
		r.err = errors.Join(r.err, err)
		for i := len(b) - 1; i >= 0; i-- {
			t.Data = append(t.Data, b[i])
		}
	}
	t.Data = t.Data[a.Skip:]
	return t
}

// index is a tensor of whole numbers; nil where there are none.
func (r *reader) index(s []string) *kernel.Tensor {
	if s == nil {
		return nil
	}
	x, err := Ints(s)
	r.err = errors.Join(r.err, err)
	return Int64s(x...)
}

// Ints reads times.
func Ints(s []string) ([]int64, error) {
	out := make([]int64, len(s))
	for i, x := range s {
		v, err := strconv.ParseInt(x, 10, 64)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}
