package conform

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// tensorLayout is the layout of a tensor in a vector, and its memory.
type tensorLayout struct {
	DType  robocache.DType `json:"dtype"`
	Shape  []int           `json:"shape"`
	Stride []int           `json:"stride"`
	Base   int             `json:"base"`
	// number of bytes before the memory, which makes the elements unaligned
	Skip   int      `json:"skip"`
	Memory []string `json:"memory"`
}

// These types read the values in vectors: numbers by their bits in hexadecimal, integers as decimal
// texts, and tensors.
type (
	bits32   float32
	bits64   float64
	numbers  []float32
	integers []int64
	tensor   kernel.Tensor
)

// UnmarshalText reads the hexadecimal bits of a float32.
func (x *bits32) UnmarshalText(b []byte) error {
	u, err := strconv.ParseUint(string(b), 16, 32)
	*x = bits32(math.Float32frombits(uint32(u)))
	return err
}

// UnmarshalText reads the hexadecimal bits of a float64.
func (x *bits64) UnmarshalText(b []byte) error {
	u, err := strconv.ParseUint(string(b), 16, 64)
	*x = bits64(math.Float64frombits(u))
	return err
}

// UnmarshalJSON reads a list of hexadecimal float32 bits.
func (x *numbers) UnmarshalJSON(b []byte) error {
	var all []bits32
	err := json.Unmarshal(b, &all)
	for _, v := range all {
		*x = append(*x, float32(v))
	}
	return err
}

// UnmarshalJSON reads a list of integers. An empty list is not nil.
func (x *integers) UnmarshalJSON(b []byte) error {
	var all []json.Number
	err := json.Unmarshal(b, &all)
	*x = integers{}
	for i := 0; i < len(all) && err == nil; i++ {
		var v int64
		v, err = all[i].Int64()
		*x = append(*x, v)
	}
	return err
}

// indexTensor returns a tensor of the integers, or nil if x is nil.
func (x integers) indexTensor() *kernel.Tensor {
	if x == nil {
		return nil
	}
	return Int64s(x...)
}

// UnmarshalJSON reads a tensorLayout. Elements are stored in hexadecimal, most significant byte
// first.
func (t *tensor) UnmarshalJSON(b []byte) error {
	var a tensorLayout
	err := json.Unmarshal(b, &a)
	data := make([]byte, a.Skip, a.Skip+8*len(a.Memory))
	for i := 0; i < len(a.Memory) && err == nil; i++ {
		var element []byte
		element, err = hex.DecodeString(a.Memory[i])
		slices.Reverse(element)
		data = append(data, element...)
	}
	*t = tensor{DType: a.DType, Shape: a.Shape, Stride: a.Stride, Base: a.Base, Data: data[a.Skip:]}
	return err
}

// ruleOptions are the fields of a vector that define a Rule.
type ruleOptions struct {
	Mode   kernel.Mode `json:"mode"`
	Edge   kernel.Edge `json:"edge"`
	MaxGap int64       `json:"max_gap,string"`
	Before int64       `json:"before,string"`
	After  int64       `json:"after,string"`
	Period bits64      `json:"period"`
	Lo     *bits64     `json:"lo"`
}

// kernelRule returns the options as a Rule.
func (o *ruleOptions) kernelRule() kernel.Rule {
	return kernel.Rule{
		Mode:   o.Mode,
		Edge:   o.Edge,
		MaxGap: o.MaxGap,
		Before: o.Before,
		After:  o.After,
		Period: float64(o.Period),
		Lo:     (*float64)(o.Lo),
	}
}
