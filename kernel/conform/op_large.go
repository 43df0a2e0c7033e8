package conform

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// largeCase is a generated FuseOp and the SHA-256 of its result. vectorgen/large_ops.py documents
// how it is generated.
type largeCase struct {
	caseName
	Batch    int  `json:"batch"`
	Targets  int  `json:"targets"`
	Shuffled bool `json:"shuffled"`
	Streams  []struct {
		DType  robocache.DType `json:"dtype"`
		Rows   int             `json:"rows"`
		Cols   int             `json:"cols"`
		Mode   kernel.Mode     `json:"mode"`
		Ragged bool            `json:"ragged"`
	} `json:"streams"`
	Out    robocache.DType `json:"out"`
	Seed   uint64          `json:"seed,string"`
	SHA256 string          `json:"sha256"`
}

// hourCase is one hour of a stream on a grid, resampled to another grid. vectorgen/more.py
// documents how it is generated.
type hourCase struct {
	caseName
	Rate       int64       `json:"rate"`
	TargetRate int64       `json:"target_rate"`
	Seconds    int64       `json:"seconds"`
	Cols       int         `json:"cols"`
	Mode       kernel.Mode `json:"mode"`
	Seed       uint64      `json:"seed,string"`
	Rows       int         `json:"rows"`
	SHA256     string      `json:"sha256"`
}

// runCase generates the stream, resamples it and compares the digest of the result.
func (c *hourCase) runCase(b kernel.Backend) error {
	grid := func(rate int64) []int64 { // times k/rate in ns, rounded half up
		out := make([]int64, rate*c.Seconds+1)
		for k := range out {
			out[k] = (2*int64(k)*1e9 + rate) / (2 * rate)
		}
		return out
	}
	src, to := grid(c.Rate), grid(c.TargetRate)
	if len(to) != c.Rows {
		return fmt.Errorf("%d rows, want %d", len(to), c.Rows)
	}
	values := Filled(robocache.Float32, 1, len(src), c.Cols)
	state := c.Seed
	if err := values.Elements(func(o int, _ []int) error {
		Put(values, o, float64(int64(splitmix(&state)>>40)-1<<23)*0x1p-20, 0)
		return nil
	}); err != nil {
		return err
	}
	out := Filled(robocache.Float32, 1, len(to), c.Cols)
	valid := Filled(robocache.Uint8, 1, len(to), 1)
	if err := b.Run(
		&kernel.FuseOp{
			Series: []kernel.Series{
				{Values: *values, Times: *Int64s(src...), Rule: kernel.Rule{Mode: c.Mode}},
			},
			Targets:  *Int64s(to...),
			Out:      *out,
			Valid:    valid,
			Validate: true,
		},
	); err != nil {
		return err
	}
	return checkDigest(c.SHA256, out.Data, valid.Data)
}

// runCase generates the operation, runs it and compares the digest of the result. The order of the
// random numbers is part of the vector.
func (c *largeCase) runCase(b kernel.Backend) error {
	state := c.Seed
	op := &kernel.FuseOp{Validate: true}
	most, cols := 0, 0
	for _, s := range c.Streams {
		most = max(most, s.Rows)
		cols += s.Cols
		offsets := make([]int64, c.Batch+1)
		for e := range c.Batch {
			n := s.Rows
			if s.Ragged {
				n = int(splitmix(&state) % uint64(s.Rows+1))
			}
			offsets[e+1] = offsets[e] + int64(n)
		}
		var timestamps []int64
		for e := range c.Batch {
			t := int64(0)
			for range offsets[e+1] - offsets[e] {
				t += int64(splitmix(&state) % 20000000)
				timestamps = append(timestamps, t)
			}
		}
		values := Filled(s.DType, len(timestamps), s.Cols)
		if err := values.Elements(func(o int, _ []int) error {
			u := splitmix(&state)
			x := float64(int64(u>>56) - 128)
			if s.DType == robocache.Float32 {
				x = float64(int64(u>>40)-1<<23) * 0x1p-20
			}
			Put(values, o, x, u>>56)
			return nil
		}); err != nil {
			return err
		}
		series := kernel.Series{
			Values: *values,
			Times:  *Int64s(timestamps...),
			Rule:   kernel.Rule{Mode: s.Mode},
		}
		if s.Ragged {
			series.Offsets = Int64s(offsets...)
		} else {
			series.Values.Shape = []int{c.Batch, s.Rows, s.Cols}
			series.Times.Shape = []int{c.Batch, s.Rows}
		}
		op.Series = append(op.Series, series)
	}
	targets := make([]int64, c.Batch*c.Targets)
	for i := range targets {
		targets[i] = int64(splitmix(&state) % (uint64(most) * 10000000))
	}
	for e := 0; e < len(targets) && !c.Shuffled; e += c.Targets {
		slices.Sort(targets[e : e+c.Targets])
	}
	op.Targets = *Int64s(targets...)
	op.Targets.Shape = []int{c.Batch, c.Targets}
	op.Out = *Filled(c.Out, c.Batch, c.Targets, cols)
	op.Valid = Filled(robocache.Uint8, c.Batch, c.Targets, len(c.Streams))
	if err := b.Run(op); err != nil {
		return err
	}
	return checkDigest(c.SHA256, op.Out.Data, op.Valid.Data)
}
