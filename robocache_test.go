package robocache

import (
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestRateNanosAgainstBigRat(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	rates := []Rate{
		{30, 1},
		{30000, 1001},
		{2997, 100},
		{333, 1},
		{1, 3},
		{1_000_000_000, 1},
		{20, 1},
	}
	for _, r := range rates {
		for range 2000 {
			k := rng.Int64N(1 << 34)
			if rng.IntN(2) == 0 {
				k = -k
			}
			// floor(x + 1/2) of k·1e9·den/num
			x := new(
				big.Rat,
			).SetFrac(
				new(big.Int).Mul(
					big.NewInt(k),
					new(big.Int).Mul(big.NewInt(1e9), big.NewInt(r.Den)),
				),
				big.NewInt(r.Num),
			)
			x.Add(x, big.NewRat(1, 2))
			want := new(big.Int).Div(x.Num(), x.Denom()) // Euclidean: floor for a positive divisor
			if !want.IsInt64() {
				continue
			}
			if got := r.Nanos(k); got != want.Int64() {
				t.Fatalf("rate %v, k %d: %d, want %d", r, k, got, want)
			}
		}
	}
}

func TestRateOf(t *testing.T) {
	for text, want := range map[string]Rate{
		"30":         {30, 1},
		"20.0":       {20, 1},
		"29.97":      {2997, 100},
		"30000/1001": {30000, 1001},
		"0.5":        {1, 2},
		"60/2":       {30, 1},
	} {
		got, err := RateOf(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "NaN", "Inf", "x", "1/0", "0/1", "-3/2", "1e30"} {
		if _, err := RateOf(text); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v, want malformed", text, err)
		}
	}
}

func TestErrorSaysPlaceAndClass(t *testing.T) {
	cause := fmt.Errorf("read: %w", fs.ErrNotExist)
	err := At(cause, Where{"file": "a.mp4"})
	err = At(err, Where{"dataset": "d", "file": "outer must not replace inner"})
	if !errors.Is(err, ErrNotFound) || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("class or cause lost: %v", err)
	}
	if !strings.Contains(err.Error(), "dataset d, file a.mp4") {
		t.Fatalf("place lost: %v", err)
	}
	if got := Classify(syscall.ENOSPC); got != ErrResourceLimit {
		t.Fatalf("ENOSPC is %v", got)
	}
	if At(nil, Where{"a": 1}) != nil {
		t.Fatal("nil became an error")
	}
}

func TestHalfToFloat32(t *testing.T) {
	for h, want := range map[uint16]float32{
		0:      0,
		0x3c00: 1,
		0xc000: -2,
		0x7bff: 65504,
		1:      1.0 / (1 << 24),
		0x03ff: 1023.0 / (1 << 24),
		0x0400: 1.0 / (1 << 14),
	} {
		if got := HalfToFloat32(h); got != want {
			t.Errorf("%#04x: %g, want %g", h, got, want)
		}
	}
}

func TestDTypeNamesRoundTrip(t *testing.T) {
	for d := Bool; d <= JSON; d++ {
		got, ok := ParseDType(d.String())
		if !ok || got != d {
			t.Errorf("%v: %v %v", d, got, ok)
		}
	}
}

func TestOpenWithoutFormats(t *testing.T) {
	if _, err := Open(t.Context(), "", OpenOptions{}); !errors.Is(err, ErrMisuse) {
		t.Errorf("empty URI: %v", err)
	}
	if _, err := Open(t.Context(), "x", OpenOptions{Format: "nope"}); !errors.Is(err,
		ErrUnsupported) {
		t.Errorf("unknown format: %v", err)
	}
	if _, err := Open(t.Context(), "x", OpenOptions{}, OpenOptions{}); !errors.Is(err, ErrMisuse) {
		t.Error("two sets of options: ", err)
	}
	if _, err := Open(t.Context(), "x"); !errors.Is(err, ErrNotFound) {
		t.Error("no options: ", err)
	}
	if _, err := Open(t.Context(), "x", OpenOptions{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing there: %v", err)
	}
}

// A name of the hub, where no such folder is, says how the dataset is got; a path does not.
func TestHubNames(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("data", 0o755); err != nil {
		t.Fatal(err)
	}
	missing := &Error{Class: ErrNotFound, Op: "open", Msg: "no such file"}
	for uri, hub := range map[string]bool{
		"lerobot/pusht":                    true,
		"lerobot/svla_so100.v2.0":          true,
		"hf://datasets/lerobot/pusht@v3.0": true, "hf://lerobot/pusht": true,
		"data/pusht":      false,
		"./lerobot/pusht": false,
		"/lerobot/pusht":  false, "records/run.mcap": false, "a/b/c": false, "pusht": false,
	} {
		var e *Error
		if err := withHubHint(uri, missing); !errors.As(err, &e) ||
			strings.Contains(e.Hint, "hf download") != hub {
			t.Errorf("%s: %v", uri, err)
		}
	}
	if err := withHubHint("lerobot/pusht", nil); err != nil {
		t.Error(err)
	}
	if _, err := Open(t.Context(), "lerobot/pusht", OpenOptions{}); err == nil ||
		!strings.Contains(err.Error(), "hf download lerobot/pusht") {
		t.Errorf("%v", err)
	}
}
