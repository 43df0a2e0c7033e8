package align

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

// TestVectors plans every conformance case and compares the plan with the stored one; those that fail must fail with
// the class and phrase that the case names, in planning or in resampling.
func TestVectors(t *testing.T) {
	cases, err := conform.Load()
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for i := range cases {
		c := &cases[i]
		times, err1 := conform.Int64s(c.Times)
		targets, err2 := conform.Int64s(c.Targets)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		p, err := NewPlan(times, targets, Options{Mode: c.Mode, Edge: c.Edge, MaxGap: c.MaxGap, Before: c.Before, After: c.After})
		if c.Error != nil {
			if err == nil {
				continue // conform runs it: what fails is the values
			}
			failed++
			class := map[string]error{"misuse": robocache.ErrMisuse, "malformed": robocache.ErrMalformed}[c.Error.Class]
			if !errors.Is(err, class) || !strings.Contains(err.Error(), c.Error.Phrase) {
				t.Errorf("%s: %s: %v, want %s: %s", c.File, c.Name, err, c.Error.Class, c.Error.Phrase)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %s: %v", c.File, c.Name, err)
			continue
		}
		want, err := c.Kernel()
		if err != nil {
			t.Fatal(err)
		}
		for j := range want.Kind {
			k := want.Kind[j]
			if p.Kind[j] != k || p.Valid[j] != want.Valid[j] || k != kernel.Zero && p.Left[j] != want.Left[j] || k >= kernel.Blend && p.Right[j] != want.Right[j] || math.Float64bits(p.Weight[j]) != math.Float64bits(want.Weight[j]) {
				t.Errorf("%s: %s: row %d: %v %d %d %v valid %d, want %v %d %d %v valid %d", c.File, c.Name, j,
					p.Kind[j], p.Left[j], p.Right[j], p.Weight[j], p.Valid[j], k, want.Left[j], want.Right[j], want.Weight[j], want.Valid[j])
				break
			}
		}
	}
	if failed < 50 {
		t.Errorf("only %d error cases", failed)
	}
}

// splitmix is the generator of the large vectors' data.
type splitmix uint64

func (s *splitmix) next() uint64 {
	*s += 0x9E3779B97F4A7C15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// TestLargeVectors resamples an hour of data and compares the digest.
func TestLargeVectors(t *testing.T) {
	b, err := kernel.Vectors.ReadFile("testdata/vectors/large.json")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Cases []struct {
			Name       string `json:"name"`
			Rate       int64  `json:"rate"`
			TargetRate int64  `json:"target_rate"`
			Seconds    int64  `json:"seconds"`
			Cols       int    `json:"cols"`
			Mode       Mode   `json:"mode"`
			Seed       uint64 `json:"seed,string"`
			Rows       int    `json:"rows"`
			SHA256     string `json:"sha256"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Cases) < 4 {
		t.Fatalf("%d cases", len(f.Cases))
	}
	for _, c := range f.Cases {
		src := Uniform(0, c.Seconds*1e9, robocache.Rate{Num: c.Rate, Den: 1})
		targets := Uniform(0, c.Seconds*1e9, robocache.Rate{Num: c.TargetRate, Den: 1})
		if len(targets) != c.Rows {
			t.Fatalf("%s: %d rows, want %d", c.Name, len(targets), c.Rows)
		}
		g := splitmix(c.Seed)
		data := make([]byte, 4*len(src)*c.Cols)
		for i := 0; i < len(data); i += 4 {
			v := float32(int64(g.next()>>40)-1<<23) * 0x1p-20
			binary.LittleEndian.PutUint32(data[i:], math.Float32bits(v))
		}
		p, err := NewPlan(src, targets, Options{Mode: c.Mode})
		if err != nil {
			t.Fatal(err)
		}
		out, valid := make([]byte, 4*c.Cols*len(targets)), make([]uint8, len(targets))
		if err := kernel.Resample(kernel.Dense(out, robocache.Float32, len(targets), c.Cols), kernel.Dense(data, robocache.Float32, len(src), c.Cols), p, kernel.Options{Valid: valid}); err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		h.Write(out)
		h.Write(valid)
		if got := hex.EncodeToString(h.Sum(nil)); got != c.SHA256 {
			t.Errorf("%s: %s, want %s", c.Name, got, c.SHA256)
		}
	}
}
