package conform

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

var le = binary.LittleEndian

func bits64(x float64) uint64 { return math.Float64bits(x) }

// Case is one vector.
type Case struct {
	File    string         `json:"-"`
	Name    string         `json:"name"`
	Times   []string       `json:"times"`
	Targets []string       `json:"targets"`
	Mode    kernel.Mode    `json:"mode"`
	Edge    kernel.Edge    `json:"edge"`
	MaxGap  int64          `json:"max_gap,string"`
	Before  int64          `json:"before,string"`
	After   int64          `json:"after,string"`
	Period  string         `json:"period"`
	Lo      string         `json:"lo"`
	Plan    *Plan          `json:"plan"`
	Data    Data           `json:"data"`
	Out     string         `json:"out"`
	Want    []string       `json:"want"`
	Valid   []uint8        `json:"-"`
	RawV    []int          `json:"valid"`
	ULP     int64          `json:"ulp"`
	Error   *ExpectedError `json:"error"`
}

// Plan is a case's plan as stored.
type Plan struct {
	Kind   []int    `json:"kind"`
	Left   []int32  `json:"left"`
	Right  []int32  `json:"right"`
	Weight []string `json:"weight"`
	Valid  []int    `json:"valid"`
}

// Data is a case's source and its layout.
type Data struct {
	DType     string   `json:"dtype"`
	Rows      int      `json:"rows"`
	Cols      int      `json:"cols"`
	RowStride int      `json:"row_stride"`
	ColStride int      `json:"col_stride"`
	Base      int      `json:"base"`
	Skip      int      `json:"skip"`
	Memory    []string `json:"memory"`
}

// ExpectedError is what a case fails with.
type ExpectedError struct {
	Class  string `json:"class"`
	Phrase string `json:"phrase"`
}

// Load reads every file of cases; scalar.json and large.json have forms of their own and are left out.
func Load() ([]Case, error) {
	const dir = "testdata/vectors"
	entries, err := kernel.Vectors.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Case
	for _, e := range entries {
		if e.IsDir() || e.Name() == "scalar.json" || e.Name() == "large.json" {
			continue
		}
		b, err := kernel.Vectors.ReadFile(path.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		var f struct{ Cases []Case }
		if err := json.Unmarshal(b, &f); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		for _, c := range f.Cases {
			c.File = e.Name()
			c.Valid = narrow(c.RawV)
			all = append(all, c)
		}
	}
	return all, nil
}

func narrow(v []int) []uint8 {
	out := make([]uint8, len(v))
	for i, x := range v {
		out[i] = uint8(x)
	}
	return out
}

// Int64s reads times.
func Int64s(s []string) ([]int64, error) {
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

func float(bits string) (float64, error) {
	u, err := strconv.ParseUint(bits, 16, 64)
	return math.Float64frombits(u), err
}

// Kernel gives the stored plan.
func (c *Case) Kernel() (*kernel.Plan, error) {
	p := &kernel.Plan{Mode: c.Mode, Sources: len(c.Times), Left: c.Plan.Left, Right: c.Plan.Right, Valid: narrow(c.Plan.Valid)}
	for _, k := range c.Plan.Kind {
		p.Kind = append(p.Kind, kernel.Kind(k))
	}
	for _, w := range c.Plan.Weight {
		f, err := float(w)
		if err != nil {
			return nil, err
		}
		p.Weight = append(p.Weight, f)
	}
	return p, nil
}

// Source lays the data out as the case says.
func (c *Case) Source() (kernel.Tensor, error) {
	d := &c.Data
	dt, ok := robocache.ParseDType(d.DType)
	if !ok {
		return kernel.Tensor{}, fmt.Errorf("dtype %q", d.DType)
	}
	buf := make([]byte, d.Skip, d.Skip+len(d.Memory)*dt.Size())
	for _, h := range d.Memory {
		b, err := hex.DecodeString(h)
		if err != nil {
			return kernel.Tensor{}, err
		}
		for i := len(b) - 1; i >= 0; i-- {
			buf = append(buf, b[i])
		}
	}
	return kernel.Tensor{Data: buf[d.Skip:], DType: dt, Shape: []int{d.Rows, d.Cols}, Stride: []int{d.RowStride, d.ColStride}, Base: d.Base}, nil
}

// Rule gives the case's mode, policy and options.
func (c *Case) Rule() (kernel.Rule, error) {
	r := kernel.Rule{Mode: c.Mode, Edge: c.Edge, MaxGap: c.MaxGap, Before: c.Before, After: c.After}
	var err error
	if c.Period != "" {
		if r.Period, err = float(c.Period); err != nil {
			return r, err
		}
	}
	if c.Lo != "" {
		lo, err := float(c.Lo)
		if err != nil {
			return r, err
		}
		r.Lo = &lo
	}
	return r, nil
}

// Check compares a result, C order, with what the case wants.
func (c *Case) Check(got []byte, valid []uint8) error {
	dt, _ := robocache.ParseDType(c.Out)
	size := dt.Size()
	if len(got) != size*len(c.Want) {
		return fmt.Errorf("%d bytes, want %d", len(got), size*len(c.Want))
	}
	for i, w := range c.Want {
		var g uint64
		for j := size - 1; j >= 0; j-- {
			g = g<<8 | uint64(got[i*size+j])
		}
		cols := max(c.Data.Cols, 1)
		if w == "nan" {
			if !isNaN(g, dt) {
				return fmt.Errorf("row %d column %d: %0*x, want a NaN", i/cols, i%cols, 2*size, g)
			}
			continue
		}
		u, err := strconv.ParseUint(w, 16, 64)
		if err != nil {
			return err
		}
		if u != g && (c.ULP == 0 || apart(u, g, dt) > c.ULP) {
			return fmt.Errorf("row %d column %d: %0*x, want %s", i/cols, i%cols, 2*size, g, w)
		}
	}
	for i, v := range c.Valid {
		if valid[i] != v {
			return fmt.Errorf("row %d: valid %d, want %d", i, valid[i], v)
		}
	}
	return nil
}

func isNaN(b uint64, dt robocache.DType) bool {
	switch dt {
	case robocache.Float64:
		return b&^(1<<63) > 0x7ff<<52
	case robocache.Float32:
		return b&0x7fffffff > 0x7f800000
	case robocache.Float16:
		return b&0x7fff > 0x7c00
	case robocache.BFloat16:
		return b&0x7fff > 0x7f80
	}
	return false
}

// apart is the distance in steps of the type; float64 results (the computing type itself) are compared as float32 steps.
func apart(a, b uint64, dt robocache.DType) int64 {
	line := func(u uint64, width int) int64 {
		if u>>(width-1) != 0 {
			return -int64(u &^ (1 << (width - 1)))
		}
		return int64(u)
	}
	var d int64
	if dt == robocache.Float64 {
		x, y := float32(math.Float64frombits(a)), float32(math.Float64frombits(b))
		if math.Abs(float64(x-y)) < 0x1p-40 {
			return 0 // near zero float64 has steps that its own computation does not resolve
		}
		d = line(uint64(math.Float32bits(x)), 32) - line(uint64(math.Float32bits(y)), 32)
	} else {
		x, y := line(a, 8*dt.Size()), line(b, 8*dt.Size())
		if dt == robocache.Float32 && math.Abs(float64(math.Float32frombits(uint32(a)))-float64(math.Float32frombits(uint32(b)))) < 0x1p-40 {
			return 0
		}
		d = x - y
	}
	if d < 0 {
		return -d
	}
	return d
}
