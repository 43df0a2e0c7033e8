package align

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

// TestVectors plans every conformance case and compares the plan with the stored one. Cases with an
// error must fail with its class and phrase, in planning or in resampling.
func TestVectors(t *testing.T) {
	cases, err := conform.Load()
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for i := range cases {
		c := &cases[i]
		p, err := NewPlan(
			c.Times,
			c.Targets,
			Options{Mode: c.Mode, Edge: c.Edge, MaxGap: c.MaxGap, Before: c.Before, After: c.After},
		)
		if c.Error != nil {
			if err == nil {
				continue // package conform runs this case, because the values cause the error
			}
			failed++
			class := map[string]error{
				"misuse":    robocache.ErrMisuse,
				"malformed": robocache.ErrMalformed,
			}[c.Error.Class]
			if !errors.Is(err, class) || !strings.Contains(err.Error(), c.Error.Phrase) {
				t.Errorf(
					"%s: %s: %v, want %s: %s",
					c.File,
					c.Name,
					err,
					c.Error.Class,
					c.Error.Phrase,
				)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %s: %v", c.File, c.Name, err)
			continue
		}
		want := c.Plan()
		for j := range want.Kind {
			k := want.Kind[j]
			if p.Kind[j] != k || p.Valid[j] != want.Valid[j] ||
				k != kernel.Zero && p.Left[j] != want.Left[j] ||
				k >= kernel.Blend && p.Right[j] != want.Right[j] ||
				math.Float64bits(p.Weight[j]) != math.Float64bits(want.Weight[j]) {
				t.Errorf(
					"%s: %s: row %d: %v %d %d %v valid %d, want %v %d %d %v valid %d",
					c.File,
					c.Name,
					j,
					p.Kind[j],
					p.Left[j],
					p.Right[j],
					p.Weight[j],
					p.Valid[j],
					k,
					want.Left[j],
					want.Right[j],
					want.Weight[j],
					want.Valid[j],
				)
				break
			}
		}
	}
	if failed < 50 {
		t.Errorf("only %d error cases", failed)
	}
}
