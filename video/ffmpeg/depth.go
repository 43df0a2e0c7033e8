//go:build cgo

package ffmpeg

import (
	"fmt"
	"math"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// depthTable returns the depth of each code in millimeters or meters. It repeats lerobot's steps
// and rounds each one to float32 like torch: code · scale + offset, exp, − shift, clamp; for
// millimeters also · 1000, round half to even, clamp to 16 bits.
func depthTable(d *robocache.Depth, metres bool) (*[4096]float32, error) {
	bad := func(want string) error {
		return robocache.Malformed("dequantize depth", nil, "").
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
		// The conversions prevent a fused multiply-add, which would round only once.
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

// depthCache caches the tables of the depth codes in use. A dataset has one code, or a few.
var depthCache depthTableCache

type depthTableCache struct {
	mu     sync.RWMutex
	tables map[depthKey]*[4096]float32
}

type depthKey struct {
	code   robocache.Depth
	metres bool
}

const maxTables = 64

// tableFor returns the table of a code, and computes it at the first call.
func (d *depthTableCache) tableFor(code robocache.Depth, metres bool) (*[4096]float32, error) {
	key := depthKey{code, metres}
	d.mu.RLock()
	t := d.tables[key]
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
	if d.tables == nil || len(d.tables) >= maxTables {
		d.tables = make(map[depthKey]*[4096]float32)
	}
	d.tables[key] = t
	return t, nil
}
