package stats

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/goatnote-inc/robocache"
)

type inMemory []byte

func (b inMemory) ReadAt(
	_ context.Context,
	p []byte,
	off int64,
) error {
	copy(p, b[off:])
	return nil
}
func (b inMemory) Size() int64     { return int64(len(b)) }
func (b inMemory) Version() string { return "" }
func (b inMemory) Close() error    { return nil }

func sortedFile(b []byte) *SortedFile {
	return &SortedFile{Open: func() (robocache.Ranged, error) { return inMemory(b), nil }}
}

// TestPartsAreTheWhole covers stats.S6: for any division into parts, through JSON and files, the
// statistics are those of all rows.
func TestPartsAreTheWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	le := binary.LittleEndian
	kinds := map[string]func(i int) float64{
		"normal":   func(int) float64 { return rng.NormFloat64() },
		"few":      func(int) float64 { return float64(rng.IntN(3)) },
		"counting": func(i int) float64 { return float64(i) },
		"stepwise": func(i int) float64 { return float64(i / 100) },
		"narrow":   func(int) float64 { return 1000 + 0.009*rng.NormFloat64() },
		"constant": func(int) float64 { return -2.5 },
		"odd": func(i int) float64 {
			return []float64{
				math.NaN(),
				math.Inf(1),
				0,
				math.Copysign(0, -1),
				-7,
			}[i%5]
		},
		"nothing":    func(int) float64 { return math.NaN() },
		"many equal": func(int) float64 { return math.Round(rng.NormFloat64() * 300) },
	}
	for name, of := range kinds {
		for _, dtype := range []robocache.DType{
			robocache.Float32,
			robocache.Float64,
			robocache.Int64,
			robocache.Uint8,
		} {
			for _, rows := range []int{1, 7, 300, 20_000} {
				if v := of(0); dtype.Integer() && v-v != 0 || dtype == robocache.Uint8 &&
					name != "few" {
					continue
				}
				var raw []byte
				for i := range 2 * rows {
					switch v := of(i / 2); dtype {
					case robocache.Float32:
						raw = le.AppendUint32(raw, math.Float32bits(float32(v)))
					case robocache.Float64:
						raw = le.AppendUint64(raw, math.Float64bits(v))
					case robocache.Int64:
						raw = le.AppendUint64(raw, uint64(int64(v)))
					default:
						raw = append(raw, byte(v))
					}
				}
				want, left, err := NumericBytes(t.Context(), dtype, []int{2}, raw, 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				var parts []Part
				row := 2 * dtype.Size()
				for at := 0; at < len(raw); {
					n := min(len(raw)-at, (1+rng.IntN(rows))*row)
					var file bytes.Buffer
					s := Sorter{Create: func() (io.Writer, error) { return &file, nil }}
					some, err := s.Parts(
						t.Context(),
						dtype,
						[]int{2},
						func(_ context.Context, yield func([]byte) error) error {
							if err := yield(raw[at : at+n/row/2*row]); err != nil {
								return err
							}
							return yield(raw[at+n/row/2*row : at+n])
						},
						int64(rng.IntN(2)*n),
						int64(1<<10+rng.IntN(1<<20)),
					)
					text, jerr := json.Marshal(some)
					var back []Part
					if err != nil || jerr != nil || json.Unmarshal(text, &back) != nil {
						t.Fatal(err, jerr)
					}
					for i := range back {
						back[i].File = sortedFile(file.Bytes())
					}
					parts, at = append(parts, back...), at+n
				}
				got, gotLeft, err := Whole(t.Context(), parts)
				if err != nil {
					t.Fatal(err)
				}
				what := fmt.Sprint(name, dtype, rows, " ", len(parts), " parts")
				for c := range 2 {
					if math.Abs(got.Mean[c]-want.Mean[c]) > 1e-12*max(1, math.Abs(want.Mean[c])) ||
						math.Abs(got.Std[c]-want.Std[c]) > 1e-9*max(1e-3, want.Std[c]) {
						t.Errorf(
							"%s: mean %v, want %v; std %v, want %v",
							what,
							got.Mean,
							want.Mean,
							got.Std,
							want.Std,
						)
					}
				}
				got.Mean, got.Std = want.Mean, want.Std
				if !reflect.DeepEqual(got, want) || left != gotLeft {
					t.Errorf("%s: %+v, want %+v", what, got, want)
				}
			}
		}
	}
}

// FuzzPart checks that an untrusted part is rejected or gives some statistics, and never crashes.
func FuzzPart(f *testing.F) {
	var file bytes.Buffer
	s := Sorter{Create: func() (io.Writer, error) { return &file, nil }}
	raw := make([]byte, 4*3000)
	for i := range 3000 {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(float32(i%700)))
	}
	parts, err := s.Parts(f.Context(), robocache.Float32, []int{1}, pieces(raw, 4), 0, 1<<20)
	text, _ := json.Marshal(parts)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, file.Bytes())
	f.Add(
		[]byte(
			`[{"dtype":"float32","rows":1,"columns":[{"n":9007199254740993,"entries":1,"marks":"AAAAAA=="}]}]`,
		),
		[]byte{},
	)
	f.Fuzz(func(t *testing.T, text, file []byte) {
		var parts []Part
		if json.Unmarshal(text, &parts) != nil || len(parts) == 0 {
			return
		}
		for i := range parts {
			parts[i].File = sortedFile(file)
		}
		_, _, _ = Whole(t.Context(), parts)
	})
}

func BenchmarkParts(b *testing.B) {
	const rows, width = 1_000_000, 14
	rng := rand.New(rand.NewPCG(1, 1))
	raw := make([]byte, 4*rows*width)
	for i := range rows * width {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(float32(rng.NormFloat64())))
	}
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		s := Sorter{Create: func() (io.Writer, error) { return io.Discard, nil }}
		if _, err := s.Parts(b.Context(), robocache.Float32, []int{width}, pieces(raw, 4*width),
			int64(len(raw)), 256<<20); err != nil {
			b.Fatal(err)
		}
	}
}
