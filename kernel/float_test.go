package kernel

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
)

// hex32 parses bits in hexadecimal. It returns true for the word nan.
func hex32(t *testing.T, s string, width int) (uint64, bool) {
	t.Helper()
	if s == "nan" {
		return 0, true
	}
	u, err := strconv.ParseUint(s, 16, width)
	if err != nil {
		t.Fatal(err)
	}
	return u, false
}

// TestScalarVectors covers kernel.K3 and kernel.K11 with the stored vectors.
func TestScalarVectors(t *testing.T) {
	b, err := Vectors.ReadFile("testdata/vectors/scalar.json")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		FMA     [][4]string
		Convert [][4]string
	}
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.FMA) < 2000 || len(f.Convert) < 1500 {
		t.Fatalf("%d, %d vectors", len(f.FMA), len(f.Convert))
	}
	for _, v := range f.FMA {
		var x [3]float32
		for i := range x {
			u, _ := hex32(t, v[i], 32)
			x[i] = math.Float32frombits(uint32(u))
		}
		got := FMA32(x[0], x[1], x[2])
		want, nan := hex32(t, v[3], 32)
		if nan != (got != got) || !nan && math.Float32bits(got) != uint32(want) {
			t.Errorf("fma %v: %08x", v, math.Float32bits(got))
		}
	}
	for _, v := range f.Convert {
		u, _ := hex32(t, v[0], 64)
		x := math.Float64frombits(u)
		got := []uint64{
			uint64(math.Float32bits(float32(x))),
			uint64(Float64to16(x)),
			uint64(Float64toB16(x)),
		}
		isNaN := []bool{
			float32(x) != float32(x),
			Float16to32(Float64to16(x)) != Float16to32(Float64to16(x)),
			BFloat16to32(Float64toB16(x)) != BFloat16to32(Float64toB16(x)),
		}
		for i := range got {
			want, nan := hex32(t, v[i+1], 32)
			if nan != isNaN[i] || !nan && got[i] != want {
				t.Errorf("convert %v form %d: %x", v, i, got[i])
			}
		}
	}
}

// TestFMA32AgainstBig covers kernel.K3. It uses sums near half a unit in the last place and near
// the subnormals, where rounding twice differs from rounding once.
func TestFMA32AgainstBig(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	n := 300_000
	if testing.Short() {
		n = 20_000
	}
	hard := 0
	for range n {
		var w, d, v float32
		switch rng.IntN(4) {
		case 0: // product near half a unit in the last place of the sum
			// (1 + k·2^-23)·(1 - k·2^-23)·2^-24 is k²·2^-70 smaller than half a unit, which float64
			// cannot represent.
			k := rng.Uint32N(256)
			w = math.Float32frombits(0x33800000 + k)
			d = math.Float32frombits(0x3f800000 - 2*k)
			v = math.Float32frombits(0x3f800000 | rng.Uint32()&0x7fffff | rng.Uint32()&(1<<31))
		case 1: // results near the smallest numbers
			w = math.Float32frombits(0x1f800000 + rng.Uint32()&0x1ffffff)
			d = math.Float32frombits(0x1f800000 + rng.Uint32()&0x1ffffff)
			v = math.Float32frombits(rng.Uint32() & 0x80ffffff)
		// the same half unit for subnormals, where the half-way point is elsewhere in float64
		case 2:
			k := rng.Uint32N(256)
			w = math.Float32frombits((127-75)<<23 + k)
			d = math.Float32frombits((127-75)<<23 - 2*k)
			v = math.Float32frombits(rng.Uint32() & 0x807fffff)
		default:
			w, d, v = math.Float32frombits(rng.Uint32()), math.Float32frombits(rng.Uint32()),
				math.Float32frombits(rng.Uint32())
		}
		if finite := func(x float32) bool { return x-x == 0 }; !finite(w) || !finite(d) ||
			!finite(v) {
			continue
		}
		x := new(big.Float).SetPrec(1200).SetFloat64(float64(w))
		x.Mul(x, new(big.Float).SetFloat64(float64(d)))
		x.Add(x, new(big.Float).SetFloat64(float64(v)))
		if x.Sign() == 0 {
			continue // scalar.json covers the sign of an exact zero
		}
		want, _ := x.Float32()
		if math.Float32bits(want) != math.Float32bits(float32(float64(w)*float64(d)+float64(v))) {
			hard++
		}
		if got := FMA32(w, d, v); math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf(
				"fma(%08x, %08x, %08x) = %08x, want %08x",
				math.Float32bits(w),
				math.Float32bits(d),
				math.Float32bits(v),
				math.Float32bits(got),
				math.Float32bits(want),
			)
		}
	}
	if hard == 0 {
		t.Error("no case was hard: float64 alone would have passed")
	}
}

// TestHalfRoundTrip covers kernel.K11: every half and bfloat16 number is unchanged by a conversion
// to float32 or float64 and back.
func TestHalfRoundTrip(t *testing.T) {
	for h := range 1 << 16 {
		if f := Float16to32(uint16(h)); f == f {
			if Float32to16(f) != uint16(h) || Float64to16(float64(f)) != uint16(h) {
				t.Fatalf("float16 %04x → %v → %04x", h, f, Float32to16(f))
			}
		} else if r := Float32to16(f); r&0x7fff <= 0x7c00 {
			t.Fatalf("float16 NaN %04x became %04x", h, r)
		}
		if f := BFloat16to32(uint16(h)); f == f {
			if Float32toB16(f) != uint16(h) || Float64toB16(float64(f)) != uint16(h) {
				t.Fatalf("bfloat16 %04x → %v → %04x", h, f, Float32toB16(f))
			}
		} else if r := Float32toB16(f); r&0x7fff <= 0x7f80 {
			t.Fatalf("bfloat16 NaN %04x became %04x", h, r)
		}
	}
	for _, b := range []uint32{0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff, 0x7f80ffff} {
		f := math.Float32frombits(b)
		if Float32toB16(f)&0x7fff <= 0x7f80 || Float32to16(f)&0x7fff <= 0x7c00 {
			t.Errorf("NaN %08x is lost", b)
		}
	}
}

func BenchmarkFMA32(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var x [4096]float32
	for i := range x {
		x[i] = rng.Float32()
	}
	b.SetBytes(4 * int64(len(x)))
	var sum float32
	for b.Loop() {
		for i := range x[2:] {
			sum += FMA32(x[i], x[i+1], x[i+2])
		}
	}
	_ = sum
}
