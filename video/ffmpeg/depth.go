//go:build cgo

package ffmpeg

import (
	"fmt"
	"math"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// depthTable gives millimetres by code, or metres. It takes lerobot's steps, each rounded to
// float32 as torch does it, so that the numbers are the same: code · scale + offset, exp, − shift,
// clamp; for millimetres then · 1000, round half to even, clamp to 16 bits.
func depthTable(d *robocache.Depth, metres bool) (*[4096]float32, error) {
	bad := func(want string) error {
		return robocache.Malformed("dequantise depth", nil, "").
			Expected(want, fmt.Sprintf("min %v, max %v, shift %v", d.Min, d.Max, d.Shift))
	}
	lo, hi := d.Min, d.Max
	if d.Log {
		if !(d.Min+d.Shift > 0) || !(d.Max+d.Shift > 0) {
			return nil, bad("depth_min + shift and depth_max + shift above 0")
		}
		lo, hi = math.Log(d.Min+d.Shift), math.Log(d.Max+d.Shift)
	}
	if math.IsNaN(hi-lo) || math.IsInf(hi-lo, 0) {
		return nil, bad("finite bounds")
	}
	scale, offset := float32((hi-lo)/4095), float32(lo)
	t := new([4096]float32)
	for q := range t {
		// The conversions keep the compiler from fusing the two into one rounding.
		v := float32(float32(float32(q)*scale) + offset)
		if d.Log {
			v = float32(float32(math.Exp(float64(v))) - float32(d.Shift))
		}
		v = max(float32(d.Min), min(v, float32(d.Max)))
		if metres {
			t[q] = v
			continue
		}
		v = float32(math.RoundToEven(float64(float32(v * 1000))))
		t[q] = max(0, min(v, 65535))
	}
	return t, nil
}

// tables are those of the depth codes in use: a dataset has one or a few.
var tables depthTables

type depthTables struct {
	mu    sync.RWMutex
	known map[depthKey]*[4096]float32
}

type depthKey struct {
	code   robocache.Depth
	metres bool
}

const maxTables = 64

func (d *depthTables) get(code robocache.Depth, metres bool) (*[4096]float32, error) {
	key := depthKey{code, metres}
	d.mu.RLock()
	t := d.known[key]
	d.mu.RUnlock()
	if t != nil {
		return t, nil
	}
	t, err := depthTable(&code, metres)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known) >= maxTables {
		d.known = make(map[depthKey]*[4096]float32)
	}
	d.known[key] = t
	return t, nil
}
